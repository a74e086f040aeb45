//go:build e2e

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/test/faults/history"
)

const (
	ledgerImage = "docker.io/pgop/ledger:dev"
	// mainLedger is the one whose outage counts; witnessLedger is on the primary's
	// node.
	mainLedger    = "ledger"
	witnessLedger = "witness"
)

// ledger is a pod that writes.
type ledger struct {
	name, address string
}

// startLedgers makes the table, and the pods that write to it, and returns when
// they have written for a while and their idle sessions are open.
func (r *round) startLedgers() {
	login := r.c.Secret()
	r.c.SQLIn(r.primary.instance, fmt.Sprintf("\\connect %s\ncreate table ledger (id text primary key);\nalter table ledger owner to %q",
		login["dbname"], login["username"]))
	r.startLedger(mainLedger, r.standbys[0].node)
	if r.plan.Witnessed() {
		r.startLedger(witnessLedger, r.primary.node)
	}
	for _, l := range r.ledgers {
		r.f.Await(time.Minute, "the ledger "+l.name+" writes", func(ctx context.Context) error {
			return l.served(ctx, 0, warmUp)
		})
	}
}

func (r *round) startLedger(name, node string) {
	pods := r.f.Kube.CoreV1().Pods(r.f.Namespace)
	if _, err := pods.Create(r.t.Context(), ledgerPod(name, node), metav1.CreateOptions{}); err != nil {
		r.t.Fatalf("create ledger: %v", err)
	}
	l := &ledger{name: name}
	r.f.Await(time.Minute, "the ledger's pod "+name+" runs", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		l.address = pod.Status.PodIP
		return nil
	})
	r.ledgers = append(r.ledgers, l)
}

func ledgerPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			RestartPolicy:                 corev1.RestartPolicyNever, // what it knows would be gone
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:         "ledger",
				Image:        ledgerImage,
				Args:         []string{"--name", name},
				VolumeMounts: []corev1.VolumeMount{{Name: "login", MountPath: "/login", ReadOnly: true}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{{Name: "login", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: clusterName + "-app"},
			}}},
		},
	}
}

// served looks whether both clients have had that many acknowledgements since,
// and the idle session is open.
func (l *ledger) served(ctx context.Context, since history.Instant, least int) error {
	body, err := l.ask(ctx, http.MethodGet, fmt.Sprintf("/status?since=%d", since), 2*time.Second)
	if err != nil {
		return err
	}
	var s history.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("ask ledger %s: %w", l.name, err)
	}
	for _, client := range []string{l.name + "/kept", l.name + "/fresh"} {
		if s.Acked[client] < least {
			return fmt.Errorf("%s has %d acknowledgements; the last error: %s", client, s.Acked[client], s.LastError)
		}
	}
	if !s.Idle {
		return fmt.Errorf("%s has no idle session", l.name)
	}
	return nil
}

// close ends the clients and returns all that they have tried.
func (l *ledger) close(ctx context.Context) ([]history.Entry, error) {
	if _, err := l.ask(ctx, http.MethodPost, "/stop", 10*time.Second); err != nil {
		return nil, err
	}
	body, err := l.ask(ctx, http.MethodGet, "/entries", 30*time.Second)
	if err != nil {
		return nil, err
	}
	var entries []history.Entry
	lines := json.NewDecoder(strings.NewReader(string(body)))
	for {
		var e history.Entry
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read ledger %s: %w", l.name, err)
		}
		entries = append(entries, e)
	}
}

func (l *ledger) ask(ctx context.Context, method, path string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+l.address+":8000"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask ledger %s: %w", l.name, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask ledger %s: %w", l.name, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	if err != nil {
		return nil, fmt.Errorf("ask ledger %s: %w", l.name, err)
	}
	return body, nil
}
