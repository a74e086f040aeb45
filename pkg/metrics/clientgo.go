package metrics

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
)

// countRequests counts what client-go asks of the API server. It is one API
// server, so the host is left out.
func countRequests() []prometheus.Collector {
	r := requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pgop_api_requests_total", Help: "Requests to the API server, by method and status code.",
		}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgop_api_request_duration_seconds", Help: "Duration of requests to the API server, by verb; of watches, until they begin.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30},
		}, []string{"verb"}),
	}
	clientmetrics.Register(clientmetrics.RegisterOpts{RequestResult: r, RequestLatency: r})
	return []prometheus.Collector{r.total, r.duration}
}

type requests struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// Increment implements clientmetrics.ResultMetric.
func (r requests) Increment(_ context.Context, code, method, _ string) {
	r.total.WithLabelValues(method, code).Inc()
}

// Observe implements clientmetrics.LatencyMetric.
func (r requests) Observe(_ context.Context, verb string, _ url.URL, took time.Duration) {
	r.duration.WithLabelValues(verb).Observe(took.Seconds())
}

// countQueues counts what goes through client-go's work queues.
func countQueues() []prometheus.Collector {
	byName := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pgop_workqueue_" + name, Help: help}, byName)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pgop_workqueue_" + name, Help: help}, byName)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgop_workqueue_" + name, Help: help, Buckets: []float64{0.0001, 0.001, 0.01, 0.1, 1, 10},
		}, byName)
	}
	q := queues{
		depth:      gauge("depth", "Clusters that wait to be woken."),
		adds:       counter("adds_total", "Wake-ups queued."),
		latency:    histogram("queue_duration_seconds", "How long wake-ups wait in the queue."),
		work:       histogram("work_duration_seconds", "How long it takes to hand a wake-up on."),
		unfinished: gauge("unfinished_work_seconds", "Seconds of work under way that has not been observed yet."),
		longest:    gauge("longest_running_seconds", "Seconds that the longest work under way has taken."),
		retries:    counter("retries_total", "Wake-ups queued with back-off after a failure, or for later."),
	}
	workqueue.SetProvider(q)
	return []prometheus.Collector{q.depth, q.adds, q.latency, q.work, q.unfinished, q.longest, q.retries}
}

// queues implements workqueue.MetricsProvider.
type queues struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func (q queues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return q.depth.WithLabelValues(name)
}
func (q queues) NewAddsMetric(name string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(name)
}

func (q queues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return q.latency.WithLabelValues(name)
}

func (q queues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return q.work.WithLabelValues(name)
}

func (q queues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(name)
}

func (q queues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(name)
}

func (q queues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(name)
}
