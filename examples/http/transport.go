package main

import (
	"context"
	"io"
	"net/http"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// transport is an [http.RoundTripper] with a circuit per host. The Set knows a host as a tool of
// that name, so its config gives a host its policy. A refusal is the error of the round trip. A
// status counts as [toolcircuit.HTTPStatus] says, and the caller still gets the response.
//
// A call lasts until its body is read or closed, or until the request's context ends. CallTimeout
// bounds it until the first byte of the body. A panic of base counts, and passes. To use this
// elsewhere, copy this file.
type transport struct {
	set  *toolset.Set
	base http.RoundTripper // [toolcircuit.Transport] tells a broken connection
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, call, err := stream.Open(req.Context(), t.set, req.URL.Host, toolset.Unknown, func(ctx context.Context) (*http.Response, error) {
		return t.base.RoundTrip(req.WithContext(ctx))
	})
	if err != nil {
		if call == nil && req.Body != nil {
			req.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	call.Judge(toolcircuit.CheckResponse(resp), resp.ContentLength == 0) // now, however long the caller reads
	resp.Body = &body{resp.Body, call}
	return resp, nil
}

// body is the body of a response.
type body struct {
	io.ReadCloser
	call *stream.Call
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, b.call.Part(err)
}

func (b *body) Close() error {
	defer b.call.End(nil) // no failure of the host: many readers stop at the end of a value
	return b.ReadCloser.Close()
}
