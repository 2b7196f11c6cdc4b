package mcpgocircuit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/client/transport"

	"github.com/toolcircuit/toolcircuit"
	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// page says which page of the list one is, and who was shown it.
type page struct{ scope, cursor string }

// list gets a page of the list of tools, or while the server is down the page that stands in: an agent
// needs its other tools.
func (c *Conn) list(ctx context.Context, x *shared.Exchange[link, *transport.JSONRPCResponse], req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	key := page{toolset.Scope(ctx), paramsOf(req).Cursor}
	res, down, err := x.Fetch(ctx)
	c.mu.Lock()
	if err == nil && res.Error == nil {
		shared.Put(c.pages, key, res.Result, maxKept)
	}
	text, kept := c.pages[key]
	c.mu.Unlock()
	var refusal *toolcircuit.OpenError
	busy := errors.As(err, &refusal) && refusal.Reason == toolcircuit.ReasonBusy
	if !down || !kept && (key.cursor != "" || busy) {
		return res, err
	}
	fields := map[string]json.RawMessage{"tools": json.RawMessage("[]")}
	_ = json.Unmarshal(text, &fields)
	fields["_meta"] = json.RawMessage(fmt.Sprintf(`{%q:{"status":%q}}`, MetaKey, toolcircuit.StatusFallback))
	if fields["ttlMs"] != nil {
		fields["ttlMs"] = json.RawMessage("0")
	}
	if text, err = json.Marshal(fields); err != nil {
		return nil, err
	}
	return transport.NewJSONRPCResultResponse(req.ID, text), nil
}

// maxKept is the number of pages that are kept.
const maxKept = 1000

// params are what a Conn reads of a request.
type params struct {
	URI    string `json:"uri"`
	Cursor string `json:"cursor"`
}

func paramsOf(req transport.JSONRPCRequest) (p params) {
	text, _ := json.Marshal(req.Params)
	_ = json.Unmarshal(text, &p)
	return p
}
