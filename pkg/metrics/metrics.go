// Package metrics counts what the operator does, for Prometheus. Labels take
// few values each, but for those that name a PostgresCluster: series of a
// cluster that is gone are gone at the next scrape, since they are made from
// the cache of clusters.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are those of one operator process.
type Metrics struct {
	registry *prometheus.Registry
	leading  prometheus.Gauge
	passes   *prometheus.HistogramVec
}

// New makes the metrics of a process that runs the given version of the
// operator. Those of client-go are the process's own, so New is called once.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pgop_leader", Help: "1 while this replica of the operator leads, else 0.",
		}),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pgop_pass_duration_seconds", Help: "Duration of passes over clusters, by result: ok, or failed when an action or the pass itself failed.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30},
		}, []string{"result"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "pgop_build_info", Help: "1; the label has the operator's version.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	for _, result := range []string{resultOK, resultFailed} {
		m.passes.WithLabelValues(result) // so that rates begin at zero
	}
	m.registry.MustRegister(m.leading, m.passes, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(countQueues()...)
	m.registry.MustRegister(countRequests()...)
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

const (
	resultOK     = "ok"
	resultFailed = "failed"
)

// Passed counts one pass over a cluster.
func (m *Metrics) Passed(took time.Duration, failed bool) {
	result := resultOK
	if failed {
		result = resultFailed
	}
	m.passes.WithLabelValues(result).Observe(took.Seconds())
}

// Leads says whether this process leads from now on.
func (m *Metrics) Leads(leads bool) {
	m.leading.Set(map[bool]float64{true: 1}[leads])
}
