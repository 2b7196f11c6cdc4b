package demo

import (
	"encoding/json"
	"net/http"
)

// OpenAI speaks the format of https://platform.openai.com/docs/api-reference/chat.
func (m *Model) OpenAI() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Stream   bool
			Messages []struct {
				Role       string
				Content    json.RawMessage
				ToolCallID string `json:"tool_call_id"`
			}
			Tools []struct {
				Function struct{ Name string }
			}
			ToolChoice any `json:"tool_choice"`
		}
		if !decode(w, r, &request) {
			return
		}
		asked := Asked{Forbidden: request.ToolChoice == "none"}
		for _, t := range request.Tools {
			asked.Tools = append(asked.Tools, t.Function.Name)
		}
		for _, message := range request.Messages {
			if message.Role != "tool" {
				asked.Results = nil
				continue
			}
			asked.Results = append(asked.Results, Result{ID: message.ToolCallID, Text: textOf(message.Content)})
		}
		n, says := m.next(asked)
		switch {
		case says.Fail != nil:
			says.Fail(w, r)
		case request.Stream:
			openAIStream(&events{w: w}, n, says)
		default:
			message := object{"role": "assistant", "content": says.Text}
			if len(says.Calls) > 0 {
				message["tool_calls"] = openAICalls(n, says.Calls)
			}
			encode(w, object{"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt", "choices": []object{
				{"index": 0, "message": message, "finish_reason": openAIReason(says)},
			}})
		}
	})
}

func openAIStream(e *events, n int, says Says) {
	chunk := func(delta object, reason any) {
		e.send("", object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt", "choices": []object{
			{"index": 0, "delta": delta, "finish_reason": reason},
		}})
	}
	first, second := halves(says.Text)
	chunk(object{"role": "assistant", "content": first}, nil)
	if says.Between != nil {
		says.Between()
	}
	if says.Break {
		e.send("", object{"error": object{"message": "The server is overloaded", "type": "server_error", "code": "server_error"}})
		return
	}
	if len(says.Calls) > 0 {
		chunk(object{"tool_calls": openAICalls(n, says.Calls)}, nil)
	} else {
		chunk(object{"content": second}, nil)
	}
	chunk(object{}, openAIReason(says))
	e.send("", "[DONE]")
}

func openAICalls(n int, calls []Call) (all []object) {
	for i, c := range calls {
		all = append(all, object{"index": i, "id": ID(n, i), "type": "function",
			"function": object{"name": c.Tool, "arguments": string(c.arguments())}})
	}
	return all
}

func openAIReason(says Says) string {
	if len(says.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}
