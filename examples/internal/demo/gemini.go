package demo

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Gemini speaks the format of https://ai.google.dev/api/generate-content.
func (m *Model) Gemini() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Contents []struct {
				Role  string
				Parts []struct {
					FunctionResponse *struct {
						ID       string
						Response json.RawMessage
					}
				}
			}
			Tools []struct {
				FunctionDeclarations []struct{ Name string }
			}
			ToolConfig struct {
				FunctionCallingConfig struct{ Mode string }
			}
		}
		if !decode(w, r, &request) {
			return
		}
		asked := Asked{Forbidden: request.ToolConfig.FunctionCallingConfig.Mode == "NONE"}
		for _, t := range request.Tools {
			for _, f := range t.FunctionDeclarations {
				asked.Tools = append(asked.Tools, f.Name)
			}
		}
		if len(request.Contents) > 0 {
			for _, p := range request.Contents[len(request.Contents)-1].Parts {
				if p.FunctionResponse != nil {
					asked.Results = append(asked.Results, Result{ID: p.FunctionResponse.ID, Text: string(p.FunctionResponse.Response)})
				}
			}
		}
		n, says := m.next(asked)
		var calls []object
		for i, c := range says.Calls {
			calls = append(calls, object{"functionCall": object{"id": ID(n, i), "name": c.Tool, "args": c.arguments()}})
		}
		answer := func(reason any, parts ...object) object {
			return object{"candidates": []object{{"content": object{"role": "model", "parts": parts}, "finishReason": reason}}}
		}
		switch {
		case says.Fail != nil:
			says.Fail(w, r)
		case !strings.Contains(r.URL.Path, ":stream"):
			if says.Text != "" {
				calls = append([]object{{"text": says.Text}}, calls...)
			}
			encode(w, answer("STOP", calls...))
		case says.Text == "":
			(&events{w: w}).send("", answer("STOP", calls...))
		default:
			e := &events{w: w}
			first, second := halves(says.Text)
			e.send("", answer(nil, object{"text": first}))
			if says.Between != nil {
				says.Between()
			}
			if says.Break {
				e.send("", object{"error": object{"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}})
				return
			}
			e.send("", answer("STOP", append([]object{{"text": second}}, calls...)...))
		}
	})
}
