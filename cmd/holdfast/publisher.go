package main

import (
	"encoding/json"
	"errors"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"holdfast/holds"
	"holdfast/proxy"
)

// publishBodyBytes bounds a call of the publish API: an event of MaxData may
// be six times as long in JSON.
const publishBodyBytes = 8 << 20

// newPublisher serves the publish API.
func (h *holdfast) newPublisher(config *fileConfig) (*proxy.Server, error) {
	a := newAccess(config.Publish.Keys, h.certificatesOf("publish.listen"), config.Publish.Listen.Address)
	guard := a.guardKeyed
	gripKey := func() string { return h.wiring.Load().config.Grip.Key } // a reload may change it
	guardGrip := func(answer func(*proxy.Asked) proxy.Respond) func(*proxy.Asked) proxy.Respond {
		return a.guardGrip(config.Publish.Keys, gripKey, answer)
	}
	publish := byShape(guard(h.publishAnswer), guardGrip(h.itemsAnswer))
	routes := []proxy.Route{
		{Match: "POST /publish", Answer: publish, BodyBytes: publishBodyBytes},
		{Match: "POST /publish/{$}", Answer: publish, BodyBytes: publishBodyBytes},
		{Match: "POST /publish/", Answer: guard(h.publishRawAnswer), BodyBytes: publishBodyBytes},
		{Match: "POST /end", Answer: guard(h.endAnswer), BodyBytes: publishBodyBytes},
		{Match: "GET /channels", Answer: guard(h.channelsAnswer)},
		{Match: "GET /channels/{$}", Answer: guard(h.channelsAnswer)},
		{Match: "GET /channels/", Answer: guard(h.channelAnswer)},
		{Match: "POST /recover", Answer: guardGrip(h.recoverAnswer), BodyBytes: publishBodyBytes},
		{Match: "GET /{$}", Answer: guardGrip(publisherIndex)},
	}
	return proxy.New(proxy.Config{}, routes, h.log, nil)
}

// byShape gives a body with items to grip, which has keys of its own, and any other to native.
func byShape(native, grip func(*proxy.Asked) proxy.Respond) func(*proxy.Asked) proxy.Respond {
	return func(asked *proxy.Asked) proxy.Respond {
		if holds.IsItems(asked.Body) {
			return grip(asked)
		}
		return native(asked)
	}
}

func publisherIndex(*proxy.Asked) proxy.Respond {
	return textAnswer("holdfast " + version + "\n\nPOST /publish /publish/CHANNEL /end /recover\nGET /channels /channels/CHANNEL\n")
}

func textAnswer(text string) proxy.Respond {
	return proxy.Respond{Status: 200, Fields: []string{"Content-Type", "text/plain; charset=utf-8"}, Body: []byte(text)}
}

// itemsAnswer publishes what a body in GRIP's form says, all of it or nothing.
func (h *holdfast) itemsAnswer(asked *proxy.Asked) proxy.Respond {
	items, err := holds.DecodeItems(asked.Body)
	if err != nil {
		return refuseInput(err)
	}
	if _, err := h.holds.PublishItems(items, asked.Body); err != nil {
		return refusePublish(err)
	}
	if prefersJSON(asked.Field("accept")) {
		return jsonAnswer(200, []byte(`{"message":"Published"}`))
	}
	return textAnswer("Published\n")
}

// recoverAnswer has every hold with a link ask the app for what there is.
func (h *holdfast) recoverAnswer(*proxy.Asked) proxy.Respond {
	return respondJSON(struct {
		Recovering int `json:"recovering"`
	}{h.holds.Recover()})
}

// prefersJSON reports whether an Accept likes JSON better than text (RFC 9110 §12.5.1).
func prefersJSON(accept string) bool {
	return acceptQuality(accept, "application", "json") > acceptQuality(accept, "text", "plain")
}

// acceptQuality is the weight of the most specific range that takes the type; a range that cannot be read takes none.
func acceptQuality(accept, kind, sub string) (quality float64) {
	most := 0
	for element := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(element)
		specific := slices.Index([]string{"*/*", kind + "/*", kind + "/" + sub}, name) + 1
		if err != nil || specific <= most {
			continue
		}
		weight := 1.0
		if text, ok := params["q"]; ok {
			if weight, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		most, quality = specific, weight
	}
	return quality
}

// publishAnswer publishes what a JSON body says.
func (h *holdfast) publishAnswer(asked *proxy.Asked) proxy.Respond {
	p, err := holds.DecodePublication(asked.Body)
	if err != nil {
		return refuseInput(err)
	}
	return h.publish(p)
}

// publishRawAnswer publishes the body as it is to the channel in the path.
func (h *holdfast) publishRawAnswer(asked *proxy.Asked) proxy.Respond {
	channel, err := channelIn(asked, "/publish/")
	if err != nil {
		return refuseInput(err)
	}
	query, err := url.ParseQuery(asked.Query)
	if err != nil {
		return proxy.Refuse("bad_request", "the query cannot be read: "+err.Error())
	}
	p := holds.Publication{Channels: []string{channel}, Event: query.Get("event"), Retry: -1, Data: asked.Body, Kind: holds.DataBinary}
	if utf8.Valid(asked.Body) {
		p.Kind = holds.DataText
	}
	if err := p.Check(); err != nil {
		return refuseInput(err)
	}
	return h.publish(p)
}

func (h *holdfast) publish(p holds.Publication) proxy.Respond {
	id, reached, err := h.holds.Publish(p)
	if err != nil {
		return refusePublish(err)
	}
	body := strconv.AppendInt([]byte(`{"id": `), id, 10)
	body = strconv.AppendInt(append(body, `, "reached": `...), int64(reached), 10)
	return jsonAnswer(200, append(body, "}\n"...))
}

func (h *holdfast) endAnswer(asked *proxy.Asked) proxy.Respond {
	r, err := holds.DecodeEnd(asked.Body)
	if err != nil {
		return refuseInput(err)
	}
	ended, err := h.holds.End(r)
	if err != nil {
		return refusePublish(err)
	}
	return respondJSON(struct {
		Ended int `json:"ended"`
	}{ended})
}

type channelReport struct {
	Holds int `json:"holds"`
}

func (h *holdfast) channelsAnswer(*proxy.Asked) proxy.Respond {
	channels := make(map[string]channelReport)
	for name, n := range h.holds.Channels() {
		channels[name] = channelReport{n}
	}
	return respondJSON(struct {
		Head     int64                    `json:"head"`
		Channels map[string]channelReport `json:"channels"`
	}{h.holds.Position(), channels})
}

func (h *holdfast) channelAnswer(asked *proxy.Asked) proxy.Respond {
	channel, err := channelIn(asked, "/channels/")
	if err != nil {
		return refuseInput(err)
	}
	connections := h.holds.Connections(channel)
	return respondJSON(struct {
		Channel     string   `json:"channel"`
		Holds       int      `json:"holds"`
		Connections []string `json:"connections"`
		Head        int64    `json:"head"`
	}{channel, len(connections), connections, h.holds.Position()})
}

// channelIn is the channel that the path names behind a prefix, percent-encoded.
func channelIn(asked *proxy.Asked, prefix string) (string, error) {
	channel, err := url.PathUnescape(strings.TrimPrefix(asked.Path, prefix))
	if err == nil {
		err = holds.CheckChannel(channel)
	}
	if err != nil {
		return "", &holds.InputError{Field: "channel", Text: "channel in the path: " + err.Error()}
	}
	return channel, nil
}

func respondJSON(v any) proxy.Respond {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return jsonAnswer(200, append(body, '\n'))
}

// refusePublish answers where the bus did not take what was published.
func refusePublish(err error) proxy.Respond {
	return proxy.Refuse("bus_down", err.Error())
}

// refuseInput answers for input that is wrong; nothing was published.
func refuseInput(err error) proxy.Respond {
	if errors.Is(err, holds.ErrTooLarge) {
		return proxy.Refuse("body_too_large", err.Error())
	}
	return proxy.Refuse("bad_request", err.Error())
}
