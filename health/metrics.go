package health

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"holdfast/internal/histogram"
)

// metrics reads the snapshots when it is scraped: nothing is counted twice and
// a request pays for no metric.
type metrics struct{ h *Health }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, labels, nil)
}

var (
	laneSlots      = describe("lane_slots", "Slots of the lane.", "lane")
	laneInUse      = describe("lane_in_use", "Slots at the upstream, the abandoned ones included.", "lane")
	laneWaiting    = describe("lane_waiting", "Requests waiting for a slot.", "lane")
	laneAbandoned  = describe("lane_abandoned", "Slots whose client is gone and whose view is not.", "lane")
	laneWait       = describe("lane_wait_seconds", "Waits for a slot, those of refused requests too.", "lane")
	laneRefused    = describe("lane_refused_total", "Requests the lane did not serve.", "lane", "reason")
	laneClosed     = describe("lane_closed_on_view_total", "Slots freed although the view's end could not be seen.", "lane")
	requestsTotal  = describe("requests_total", "Exchanges by route and status; 499: the client left first.", "route", "code")
	requestSeconds = describe("request_seconds", "From a request's head to its answer's last byte.", "route")
	upstreamUp     = describe("upstream_up", "Whether the target can be reached.", "target")
	parked         = describe("parked", "Requests waiting while no target of their lane is up.")
	retriedTotal   = describe("retried_total", "Requests sent a second time.")
	holdsOpen      = describe("holds_open", "Clients that are held.", "kind")
	holdsEnded     = describe("holds_ended_total", "Holds that ended.", "kind", "reason")
	gapsTold       = describe("gaps_told_total", "Clients that were told of missing events.")
	published      = describe("events_published_total", "Events published.")
	offered        = describe("events_offered_total", "Events given to holds, each hold counted.")
	inboundTotal   = describe("inbound_total", "Messages that clients of WebSockets sent to the app.", "result")
	outboxBytes    = describe("outbox_bytes", "Events that wait for slow clients, counted for each client.")
	journalBytes   = describe("journal_bytes", "Events that can be replayed, with what keeping them takes.")
	busConnected   = describe("bus_connected", "Whether events of other nodes arrive; always 1 with the bus in memory.")
	busEntries     = describe("bus_entries_total", "Events that came from the bus, those of this node too; none with the bus in memory.")
	memoryBytes    = describe("memory_bytes", "Bodies and answers in memory.")
	spoolBytes     = describe("spool_bytes", "Bodies and answers in temporary files.")
	spoolRefused   = describe("spool_refused_total", "How often neither memory nor spool had room.")
	reloadTotal    = describe("reload_total", "Reloads of the configuration.", "result")
	memoryLimit    = describe("memory_limit_bytes", "What bodies and answers may take in memory: limits.memory.")
	spoolLimit     = describe("spool_limit_bytes", "What they may take in temporary files: limits.spool.bytes; 0: no spool.")
	journalLimit   = describe("journal_limit_bytes", "What the journal may take: holds.journal.bytes.")
	buildInfo      = describe("build_info", "Always 1; what runs, and its name.", "version", "instance")
)

// usualCodes are the statuses that every route has from the start: rate() sees
// nothing of a series' first value, and the first failure is the one to see.
// Any other is there once it was answered; what an app may answer is no closed
// list.
var usualCodes = [...]int{200, 499, 500, 502, 503, 504}

// Describe sends every description (prometheus.Collector).
func (m metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{laneSlots, laneInUse, laneWaiting, laneAbandoned, laneWait, laneRefused,
		laneClosed, requestsTotal, requestSeconds, upstreamUp, parked, retriedTotal, holdsOpen, holdsEnded, gapsTold,
		published, offered, inboundTotal, outboxBytes, journalBytes, busConnected, busEntries, memoryBytes, spoolBytes, spoolRefused, reloadTotal,
		memoryLimit, spoolLimit, journalLimit, buildInfo} {
		out <- d
	}
}

// Collect sends the present values (prometheus.Collector).
func (m metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	var waiting, retried = 0, uint64(0)
	for _, l := range m.h.cfg.Lanes() {
		gauge(laneSlots, float64(l.Slots), l.Name)
		gauge(laneInUse, float64(l.InUse), l.Name)
		gauge(laneWaiting, float64(l.Waiting), l.Name)
		gauge(laneAbandoned, float64(l.Abandoned), l.Name)
		out <- durations(laneWait, l.Waited, l.Name)
		for reason, n := range l.Refused {
			counter(laneRefused, n, l.Name, reason)
		}
		counter(laneClosed, l.ClosedOnView, l.Name)
		waiting += l.Parked
		retried += l.Retried
	}
	gauge(parked, float64(waiting))
	counter(retriedTotal, retried)
	for _, r := range m.h.cfg.Routes() {
		for _, code := range usualCodes {
			counter(requestsTotal, r.Codes[code], r.Name, strconv.Itoa(code))
		}
		for code, n := range r.Codes {
			if !slices.Contains(usualCodes[:], code) {
				counter(requestsTotal, n, r.Name, strconv.Itoa(code))
			}
		}
		out <- durations(requestSeconds, r.Took, r.Name)
	}
	told := make(map[string]bool)
	for _, t := range m.h.cfg.Targets() {
		if told[t.Name] {
			continue // two upstreams have it
		}
		told[t.Name] = true
		gauge(upstreamUp, oneIf(t.Up), t.Name)
	}
	m.collectHolds(gauge, counter)
	gauge(memoryBytes, float64(m.h.cfg.Memory()))
	spooled, refused := m.h.cfg.Spool()
	gauge(spoolBytes, float64(spooled))
	counter(spoolRefused, refused)
	ok, failed := m.h.cfg.Reloads()
	counter(reloadTotal, ok, "ok")
	counter(reloadTotal, failed, "failed")
	limits := m.h.cfg.Limits()
	gauge(memoryLimit, float64(limits.Memory))
	gauge(spoolLimit, float64(limits.Spool))
	gauge(journalLimit, float64(limits.Journal))
	gauge(buildInfo, 1, m.h.cfg.Version, m.h.cfg.Instance)
}

func (m metrics) collectHolds(gauge func(*prometheus.Desc, float64, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	held := m.h.cfg.Holds()
	for kind, n := range held.Open {
		gauge(holdsOpen, float64(n), kind)
	}
	for kind, reasons := range held.Ended {
		for reason, n := range reasons {
			counter(holdsEnded, n, kind, reason)
		}
	}
	counter(gapsTold, held.GapsTold)
	counter(published, held.Published)
	counter(offered, held.Offered)
	for result, n := range held.Inbound {
		counter(inboundTotal, n, result)
	}
	gauge(outboxBytes, float64(held.OutboxBytes))
	gauge(journalBytes, float64(held.JournalBytes))
	b := m.h.cfg.Bus()
	gauge(busConnected, oneIf(b.Connected))
	counter(busEntries, b.Entries)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func durations(d *prometheus.Desc, s histogram.Snapshot, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(s.Below))
	for i, n := range s.Below {
		buckets[histogram.Bounds[i].Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(d, s.Count, s.Sum.Seconds(), buckets, labels...)
}

// Metrics renders the Prometheus text exposition, and gives its content type.
func (h *Health) Metrics() (contentType string, body []byte, err error) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(metrics{h}); err != nil {
		return "", nil, err
	}
	families, err := registry.Gather()
	if err != nil {
		return "", nil, err
	}
	var out bytes.Buffer
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	encoder := expfmt.NewEncoder(&out, format)
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return "", nil, err
		}
	}
	return string(format), out.Bytes(), nil
}
