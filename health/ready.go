package health

import (
	"fmt"
	"sync"
	"time"
)

// askWait is how long /ready waits for the app.
const askWait = time.Second

// Ready gives the reasons why this process should get no traffic; none: it is
// ready. Targets that have been silent for a while are asked, once for all who
// call at the same time; a target without a free slot is busy, not sick.
func (h *Health) Ready() []string {
	if state := h.cfg.State(); state != "ready" {
		return []string{state}
	}
	if reason := h.cfg.Bus().Reason; reason != "" {
		return []string{reason}
	}
	h.mu.Lock()
	asking := h.asking
	if asking == nil {
		asking = make(chan struct{})
		h.asking = asking
		h.mu.Unlock()
		reasons := append(h.silentUpstreams(), h.lostLanes()...)
		h.mu.Lock()
		h.asking, h.result = nil, reasons
		h.mu.Unlock()
		close(asking)
		return reasons
	}
	h.mu.Unlock()
	<-asking
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.result
}

// silentUpstreams names the upstreams of which no target is up and answering.
func (h *Health) silentUpstreams() (reasons []string) {
	targets := h.cfg.Targets()
	problems := make([]string, len(targets))
	var asked sync.WaitGroup
	for i, t := range targets {
		asked.Go(func() { problems[i] = h.problem(t) })
	}
	asked.Wait()
	answering := make(map[string]bool)
	var order []string
	told := make(map[string]string)
	for i, t := range targets {
		if _, ok := told[t.Upstream]; !ok {
			order = append(order, t.Upstream)
		}
		told[t.Upstream] += fmt.Sprintf("; target %s %s", t.Name, problems[i])
		answering[t.Upstream] = answering[t.Upstream] || problems[i] == ""
	}
	for _, name := range order {
		if !answering[name] {
			reasons = append(reasons, "upstream "+name+": no target is up and answering"+told[name])
		}
	}
	return reasons
}

// problem says what is wrong with a target, "" if nothing is.
func (h *Health) problem(t Target) string {
	if !t.Up {
		return fmt.Sprintf("is down for %v (%s)", time.Since(t.Since).Round(time.Millisecond), t.Err)
	}
	h.mu.Lock()
	since, silent := h.silent[t.Name]
	if silent && !t.Asked { // it has answered, or its slot was given up: it may be asked again
		delete(h.silent, t.Name)
		silent = false
	}
	failed := h.failed[t.Name] // then only another asking can tell
	h.mu.Unlock()
	if silent {
		return fmt.Sprintf("was asked %v ago and has not answered", time.Since(since).Round(time.Millisecond))
	}
	if !failed && time.Since(t.Heard) < h.cfg.Interval(t.Upstream) {
		return ""
	}
	began := time.Now()
	answer := h.cfg.Ask(t.Name, askWait)
	if !answer.Asked {
		return ""
	}
	h.mu.Lock()
	if h.failed[t.Name] = !answer.Answered && !answer.Silent; answer.Silent {
		h.silent[t.Name] = began
	}
	h.mu.Unlock()
	switch {
	case answer.Answered:
		return ""
	case answer.Silent:
		return fmt.Sprintf("did not answer within %v", askWait)
	}
	return "failed: " + answer.Err
}

// lostLanes names the lanes all of whose slots are abandoned.
func (h *Health) lostLanes() (reasons []string) {
	for _, l := range h.cfg.Lanes() {
		if l.Slots > 0 && l.Abandoned >= l.Slots {
			reasons = append(reasons, fmt.Sprintf("lane %s: all %d slots are abandoned, their views have not ended", l.Name, l.Slots))
		}
	}
	return reasons
}

type readyReport struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

// ReadyBody renders Ready's reasons as the JSON of /ready.
func ReadyBody(reasons []string) (status int, body []byte) {
	if len(reasons) == 0 {
		return 200, encode(readyReport{Status: "ready"})
	}
	return 503, encode(readyReport{"not ready", reasons})
}
