package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
)

// hosts are servers on loopback by the names of their hosts.
type hosts map[string]*httptest.Server

// newHosts starts a server for each handler.
func newHosts(handlers map[string]http.HandlerFunc) hosts {
	h := hosts{}
	for name, handler := range handlers {
		h[name] = httptest.NewServer(handler)
	}
	return h
}

func (h hosts) close() {
	for _, server := range h {
		server.Close()
	}
}

// transport returns one that finds these hosts and no others.
func (h hosts) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		name, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		server, ok := h[name]
		if !ok {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}}
}
