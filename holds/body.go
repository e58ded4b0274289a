package holds

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// What goes to the bus has the form in which it would be published: anybody may
// add to the bus what the publish API takes.

// appendBody renders a publication as DecodePublication reads it.
func (p *Publication) appendBody(dst []byte) []byte {
	dst = append(appendJSON(append(dst, `{"channel":`...), p.Channels), ',')
	switch p.Kind {
	case DataBinary:
		dst = append(base64.StdEncoding.AppendEncode(append(dst, `"base64":"`...), p.Data), '"')
	case DataJSON:
		dst = append(append(dst, `"data":`...), p.Data...)
	default:
		dst = appendJSON(append(dst, `"data":`...), string(p.Data))
	}
	if p.Event != "" {
		dst = appendJSON(append(dst, `,"event":`...), p.Event)
	}
	if p.Retry >= 0 {
		dst = strconv.AppendInt(append(dst, `,"retry":`...), int64(p.Retry), 10)
	}
	return append(dst, '}')
}

// appendBody renders what ends holds on every node.
func (r *EndRequest) appendBody(dst []byte) []byte {
	members := make(map[string]any)
	if r.Code != 0 {
		members["code"] = r.Code
	}
	for key, text := range map[string]string{"channel": r.Channel, "connection": r.Connection, "reason": r.Reason} {
		if text != "" {
			members[key] = text
		}
	}
	return append(appendJSON(append(dst, `{"`+endKey+`":`...), members), '}')
}

// portions parts a body with many items into entries of itemsAtOnce each.
func portions(body []byte) (parts [][]byte) {
	var all struct {
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &all) != nil || len(all.Items) <= itemsAtOnce {
		return [][]byte{body}
	}
	for len(all.Items) > 0 {
		n := min(len(all.Items), itemsAtOnce)
		parts = append(parts, append(appendJSON([]byte(`{"items":`), all.Items[:n]), '}'))
		all.Items = all.Items[n:]
	}
	return parts
}
