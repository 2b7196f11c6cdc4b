package main

import (
	"io"
	"net/http"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// transport is an [http.RoundTripper] with a circuit per host. The Set knows a host as a tool of
// that name, so its config gives a host its policy. A refusal is the error of the round trip. A
// status counts as [toolcircuit.HTTPStatus] says, and the caller still gets the response.
//
// A call lasts until its body is read or closed. CallTimeout bounds it until the first byte of the
// body. To use this elsewhere, copy this file and internal/stream/stream.go.
type transport struct {
	set  *toolset.Set
	base http.RoundTripper // [toolcircuit.Transport] tells a broken connection
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	permit, err := t.set.Allow(ctx, req.URL.Host, toolset.Unknown)
	if err != nil {
		if req.Body != nil {
			req.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	inner, flows, end := stream.Context(ctx, permit.Context)
	over := func(err error) error {
		defer end()
		_, err = permit.Settle(ctx, nil, err)
		return err
	}
	resp, err := t.base.RoundTrip(req.WithContext(inner))
	if err != nil {
		return nil, over(err)
	}
	if err := toolcircuit.CheckResponse(resp); err != nil {
		flows()
		permit.Settle(ctx, nil, err) // now, however long the caller reads
	}
	resp.Body = &body{resp.Body, flows, over}
	return resp, nil
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	flows func()
	over  func(error) error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.over(nil)
	case err != nil:
		err = b.over(err)
	case n > 0:
		b.flows()
	}
	return n, err
}

// Close before the end is no failure of the host: many a reader stops at the end of a value.
func (b *body) Close() error {
	defer b.over(nil)
	return b.ReadCloser.Close()
}
