package sdktest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/toolcircuit/toolcircuit"
)

// frames serves HTTP/2 without TLS on a pipe: it answers each request with what act writes.
func frames(c net.Conn, act func(f *http2.Framer, c net.Conn, stream uint32)) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	requests := make(chan uint32, 100)
	defer close(requests)
	go func() { // a pipe has no buffer, so who writes must not be who reads
		_ = f.WriteSettings()
		for stream := range requests {
			act(f, c, stream)
		}
	}()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if h, ok := frame.(*http2.HeadersFrame); ok {
			requests <- h.StreamID
		}
	}
}

// headers writes status 200, and leaves the stream open.
func headers(f *http2.Framer, stream uint32) {
	var block writer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true})
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

func TestHTTP2(t *testing.T) {
	reset := func(code http2.ErrCode) func(*http2.Framer, net.Conn, uint32) {
		return func(f *http2.Framer, _ net.Conn, stream uint32) { _ = f.WriteRSTStream(stream, code) }
	}
	goAway := func(code http2.ErrCode, last uint32) func(*http2.Framer, net.Conn, uint32) {
		return func(f *http2.Framer, c net.Conn, stream uint32) {
			_ = f.WriteGoAway(last, code, nil)
			c.Close()
		}
	}
	events := []struct {
		event     string
		act       func(*http2.Framer, net.Conn, uint32)
		want      verdict
		transport verdict // what it is behind toolcircuit.Transport
		why       string
	}{
		{"RST_STREAM INTERNAL_ERROR", reset(http2.ErrCodeInternal), unavailable, unavailable, ""},
		{"RST_STREAM CANCEL", reset(http2.ErrCodeCancel), unavailable, unavailable, ""},
		{"RST_STREAM ENHANCE_YOUR_CALM", reset(http2.ErrCodeEnhanceYourCalm), rateLimited, rateLimited, ""},
		{"RST_STREAM REFUSED_STREAM, asked again for a minute", reset(http2.ErrCodeRefusedStream), unavailable, unavailable, ""},
		{"RST_STREAM after the headers", func(f *http2.Framer, _ net.Conn, stream uint32) {
			headers(f, stream)
			_ = f.WriteRSTStream(stream, http2.ErrCodeInternal)
		}, unavailable, unavailable, ""},
		{"connection closed after the headers", func(f *http2.Framer, c net.Conn, stream uint32) {
			headers(f, stream)
			c.Close()
		}, unavailable, unavailable, ""},
		{"connection closed before the headers", func(_ *http2.Framer, c net.Conn, _ uint32) { c.Close() }, unavailable, unavailable, ""},
		{"GOAWAY INTERNAL_ERROR", goAway(http2.ErrCodeInternal, 1), unavailable, unavailable, ""},
		{"GOAWAY ENHANCE_YOUR_CALM", goAway(http2.ErrCodeEnhanceYourCalm, 1), rateLimited, rateLimited, ""},
		{"GOAWAY NO_ERROR, connection closed", goAway(http2.ErrCodeNo, 1), unavailable, unavailable, ""},
		{"frame of a wrong size", func(f *http2.Framer, c net.Conn, stream uint32) {
			_ = f.WriteRawFrame(http2.FrameRSTStream, 0, stream, []byte{1})
		}, unavailable, unavailable, ""},
		{"headers that cannot be decoded", func(f *http2.Framer, c net.Conn, stream uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}, unavailable, unavailable, ""},
		{"headers without a status", func(f *http2.Framer, _ net.Conn, stream uint32) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true})
		}, unavailable, unavailable, ""},
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	type dialer = func(context.Context, string, string) (net.Conn, error)
	for name, base := range map[string]func(dialer) http.RoundTripper{
		"net/http": func(dial dialer) http.RoundTripper {
			return &http.Transport{Protocols: &protocols, DialContext: dial}
		},
		"x/net": func(dial dialer) http.RoundTripper {
			//lint:ignore SA1019 users of x/net still have its Transport, whose errors are its own
			return &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
				return dial(ctx, network, address)
			}}
		},
	} {
		// get makes one request in a bubble, so that the minute passes at once.
		get := func(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper, act func(*http2.Framer, net.Conn, uint32)) (err error) {
			synctest.Test(t, func(t *testing.T) {
				var clients []net.Conn
				rt := base(func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					clients = append(clients, client)
					go frames(server, act)
					return client, nil
				})
				defer func() {
					for _, c := range clients {
						c.Close()
					}
				}()
				var resp *http.Response
				if resp, err = (&http.Client{Transport: wrap(rt)}).Get("http://dep/"); err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
			})
			return err
		}
		plain := func(rt http.RoundTripper) http.RoundTripper { return rt }
		var rows []row
		for _, e := range events {
			rows = append(rows,
				row{event: name + " " + e.event, want: e.want, why: e.why, fail: func(t *testing.T) error { return get(t, plain, e.act) }},
				row{event: name + " behind Transport " + e.event, want: e.transport, fail: func(t *testing.T) error {
					return get(t, toolcircuit.Transport, e.act)
				}})
		}
		check(t, rows)
	}
}
