package demo

import (
	"encoding/json"
	"net/http"
)

// Anthropic speaks the format of https://docs.anthropic.com/en/api/messages.
func (m *Model) Anthropic() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Stream   bool
			Messages []struct {
				Content json.RawMessage
			}
			Tools      []struct{ Name string }
			ToolChoice struct{ Type string } `json:"tool_choice"`
		}
		if !decode(w, r, &request) {
			return
		}
		asked := Asked{Forbidden: request.ToolChoice.Type == "none"}
		for _, t := range request.Tools {
			asked.Tools = append(asked.Tools, t.Name)
		}
		if len(request.Messages) > 0 {
			var blocks []struct {
				Type      string
				ToolUseID string `json:"tool_use_id"`
				IsError   bool   `json:"is_error"`
				Content   json.RawMessage
			}
			json.Unmarshal(request.Messages[len(request.Messages)-1].Content, &blocks)
			for _, b := range blocks {
				if b.Type == "tool_result" {
					asked.Results = append(asked.Results, Result{b.ToolUseID, textOf(b.Content), b.IsError})
				}
			}
		}
		n, says := m.next(asked)
		message := object{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
			"stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1}}
		switch {
		case says.Fail != nil:
			says.Fail(w, r)
		case request.Stream:
			anthropicStream(&events{w: w}, n, says, message)
		default:
			content := []object{}
			if says.Text != "" {
				content = append(content, object{"type": "text", "text": says.Text})
			}
			for i, c := range says.Calls {
				content = append(content, object{"type": "tool_use", "id": ID(n, i), "name": c.Tool, "input": c.arguments()})
			}
			message["content"], message["stop_reason"] = content, anthropicReason(says)
			encode(w, message)
		}
	})
}

func anthropicStream(e *events, n int, says Says, message object) {
	send := func(name string, data object) {
		data["type"] = name
		e.send(name, data)
	}
	index := 0
	block := func(start object, deltas ...object) {
		send("content_block_start", object{"index": index, "content_block": start})
		for _, d := range deltas {
			send("content_block_delta", object{"index": index, "delta": d})
		}
		send("content_block_stop", object{"index": index})
		index++
	}
	message["content"], message["stop_reason"] = []object{}, nil
	send("message_start", object{"message": message})
	if says.Text != "" {
		first, second := halves(says.Text)
		send("content_block_start", object{"index": index, "content_block": object{"type": "text", "text": ""}})
		send("content_block_delta", object{"index": index, "delta": object{"type": "text_delta", "text": first}})
		if says.Between != nil {
			says.Between()
		}
		if says.Break {
			send("error", object{"error": object{"type": "overloaded_error", "message": "Overloaded"}})
			return
		}
		send("content_block_delta", object{"index": index, "delta": object{"type": "text_delta", "text": second}})
		send("content_block_stop", object{"index": index})
		index++
	}
	for i, c := range says.Calls {
		block(object{"type": "tool_use", "id": ID(n, i), "name": c.Tool, "input": object{}},
			object{"type": "input_json_delta", "partial_json": string(c.arguments())})
	}
	send("message_delta", object{"delta": object{"stop_reason": anthropicReason(says), "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	send("message_stop", object{})
}

func anthropicReason(says Says) string {
	if len(says.Calls) > 0 {
		return "tool_use"
	}
	return "end_turn"
}
