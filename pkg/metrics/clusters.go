package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
)

// clusters makes series from the cache of clusters, at each scrape.
type clusters struct {
	lister                        postgreslisters.PostgresClusterLister
	byPhase, wanted, ready, sound *prometheus.Desc
}

// WatchClusters counts the clusters that the lister has, until stop is called.
func (m *Metrics) WatchClusters(lister postgreslisters.PostgresClusterLister) (stop func(), err error) {
	perCluster := []string{"namespace", "name"}
	c := &clusters{
		lister:  lister,
		byPhase: prometheus.NewDesc("pgop_clusters", "Number of PostgresClusters, by phase.", []string{"phase"}, nil),
		wanted:  prometheus.NewDesc("pgop_cluster_instances_wanted", "Instances that the spec asks for.", perCluster, nil),
		ready:   prometheus.NewDesc("pgop_cluster_instances_ready", "Instances that serve.", perCluster, nil),
		sound: prometheus.NewDesc("pgop_cluster_condition", "1 while the condition is True, else 0.",
			append(perCluster, "condition"), nil),
	}
	if err := m.registry.Register(c); err != nil {
		return nil, fmt.Errorf("count clusters: %w", err)
	}
	return func() { m.registry.Unregister(c) }, nil
}

var phases = []v1.Phase{v1.PhaseCreating, v1.PhaseHealthy, v1.PhaseProgressing, v1.PhaseDegraded, v1.PhaseUnavailable,
	v1.PhaseStopping, v1.PhaseStopped, v1.PhasePaused, v1.PhaseInvalid}

func (c *clusters) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.byPhase, c.wanted, c.ready, c.sound} {
		descriptions <- d
	}
}

func (c *clusters) Collect(series chan<- prometheus.Metric) {
	all, err := c.lister.List(labels.Everything())
	if err != nil {
		series <- prometheus.NewInvalidMetric(c.byPhase, err)
		return
	}
	counts := map[v1.Phase]int{}
	gauge := func(d *prometheus.Desc, value float64, values ...string) {
		series <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, values...)
	}
	for _, cluster := range all {
		phase := cluster.Status.Phase
		if phase == "" {
			phase = v1.PhaseCreating // before its first pass
		}
		counts[phase]++
		gauge(c.wanted, float64(*v1.WithDefaults(cluster).Spec.Instances), cluster.Namespace, cluster.Name)
		gauge(c.ready, float64(cluster.Status.ReadyInstances), cluster.Namespace, cluster.Name)
		for _, condition := range cluster.Status.Conditions {
			if condition.Reason == v1.ReasonBackupsOff {
				continue // nobody asked for it: an alert would be false
			}
			value := 0.0
			if condition.Status == metav1.ConditionTrue {
				value = 1
			}
			gauge(c.sound, value, cluster.Namespace, cluster.Name, condition.Type)
		}
	}
	for _, phase := range phases {
		gauge(c.byPhase, float64(counts[phase]), string(phase))
	}
}
