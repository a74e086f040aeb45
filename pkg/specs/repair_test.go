package specs

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/pki"
)

// someday is when something is repaired.
var someday = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// liveService is a Service as the API server keeps it: with its defaults.
func liveService(t *testing.T, want *corev1.Service) *corev1.Service {
	s := fromAPIServer(t, want)
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = "10.96.0.17"
	}
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	s.Labels["added-by"] = "somebody"
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, "added-by", "somebody")
	return s
}

func TestServicesAreRepairedWhereTheyDifferFromWhatIsAsked(t *testing.T) {
	c := shop()
	for _, want := range Services(c) {
		if repaired := RepairService(liveService(t, want), want); repaired != nil {
			t.Errorf("%s: not changed by anybody, and repaired:\n%s", want.Name, cmp.Diff(want, repaired))
		}
		for why, edit := range map[string]func(*corev1.Service){
			"a selector added":       func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "mine"} },
			"the label taken away":   func(s *corev1.Service) { delete(s.Labels, ClusterLabel) },
			"labels taken away":      func(s *corev1.Service) { s.Labels = nil },
			"another port":           func(s *corev1.Service) { s.Spec.Ports[0].Port = 5433 },
			"another target":         func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") },
			"a port added":           func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "x", Port: 1}) },
			"addresses from outside": func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} },
			"another type":           func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
			"sources":                func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
			"addresses before ready": func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = !s.Spec.PublishNotReadyAddresses },
		} {
			edited := liveService(t, want)
			edit(edited)
			before := edited.DeepCopy()
			repaired := RepairService(edited, want)
			if repaired == nil {
				t.Errorf("%s, %s: not repaired", want.Name, why)
				continue
			}
			if diff := cmp.Diff(before, edited); diff != "" {
				t.Errorf("%s, %s: the cached object was changed:\n%s", want.Name, why, diff)
			}
			if RepairService(repaired, want) != nil {
				t.Errorf("%s, %s: the repaired object is repaired again", want.Name, why)
			}
			ours := liveService(t, want)
			if why == "labels taken away" {
				delete(ours.Labels, "added-by")
			}
			if diff := cmp.Diff(ours, repaired); diff != "" {
				t.Errorf("%s, %s:\n%s", want.Name, why, diff)
			}
		}
	}
}

// What the spec has asked for and asks for no more goes; what somebody else has set
// stays, such as a cloud's controller.
func TestAnnotationsOfServices(t *testing.T) {
	asked := func(annotations map[string]string) *corev1.Service {
		c := shop()
		c.Spec.Services.RW = v1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Annotations: annotations}
		return Services(c)[0]
	}
	live := liveService(t, asked(map[string]string{"a": "1", "b": "2"}))
	for why, c := range map[string]struct{ asked, want map[string]string }{
		"none any more": {nil, map[string]string{"added-by": "somebody"}},
		"another value": {map[string]string{"a": "3", "b": "2"}, map[string]string{"added-by": "somebody", "a": "3", "b": "2", AskedAnnotation: "a,b"}},
		"one less":      {map[string]string{"b": "2"}, map[string]string{"added-by": "somebody", "b": "2", AskedAnnotation: "b"}},
		"one more":      {map[string]string{"a": "1", "b": "2", "c": "3"}, map[string]string{"added-by": "somebody", "a": "1", "b": "2", "c": "3", AskedAnnotation: "a,b,c"}},
	} {
		repaired := RepairService(live, asked(c.asked))
		if repaired == nil {
			t.Errorf("%s: not repaired", why)
			continue
		}
		if diff := cmp.Diff(c.want, repaired.Annotations); diff != "" {
			t.Errorf("%s:\n%s", why, diff)
		}
		if RepairService(repaired, asked(c.asked)) != nil {
			t.Errorf("%s: repaired again", why)
		}
	}
	if RepairService(live, asked(map[string]string{"a": "1", "b": "2"})) != nil {
		t.Error("as asked, and repaired")
	}
}

func TestRolesAreRepaired(t *testing.T) {
	c := shop()
	role, binding := InstanceRole(c), InstanceRoleBinding(c)
	if RepairRole(fromAPIServer(t, role), role) != nil || RepairRoleBinding(fromAPIServer(t, binding), binding) != nil {
		t.Error("repaired, and nobody had changed them")
	}
	wider := fromAPIServer(t, role)
	wider.Rules = append(wider.Rules, rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}})
	if diff := cmp.Diff(fromAPIServer(t, role), RepairRole(wider, role)); diff != "" {
		t.Error(diff)
	}
	nobody := fromAPIServer(t, binding)
	nobody.Subjects = nil
	if diff := cmp.Diff(fromAPIServer(t, binding), RepairRoleBinding(nobody, binding)); diff != "" {
		t.Error(diff)
	}
	unlabelled := fromAPIServer(t, binding)
	unlabelled.Labels = nil
	if diff := cmp.Diff(fromAPIServer(t, binding), RepairRoleBinding(unlabelled, binding)); diff != "" {
		t.Error(diff)
	}
}

func TestSliceIsLedBackToItsService(t *testing.T) {
	c := shop()
	want := RWEndpointSlice(c, Services(c)[0])
	live := fromAPIServer(t, want)
	live.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.7"}}}
	if RepairEndpointSlice(live, want) != nil {
		t.Error("the primary's address counts as drift")
	}
	stray := live.DeepCopy()
	delete(stray.Labels, discoveryv1.LabelServiceName)
	if diff := cmp.Diff(live, RepairEndpointSlice(stray, want)); diff != "" {
		t.Error(diff)
	}
}

func TestSliceTakesTheServicesAddressFamily(t *testing.T) {
	c := shop()
	rw := Services(c)[0]
	got := []discoveryv1.AddressType{}
	for _, families := range [][]corev1.IPFamily{nil, {corev1.IPv4Protocol}, {corev1.IPv6Protocol}, {corev1.IPv6Protocol, corev1.IPv4Protocol}} {
		rw.Spec.IPFamilies = families
		got = append(got, RWEndpointSlice(c, rw).AddressType)
	}
	want := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeIPv6}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConfigMapIsRepaired(t *testing.T) {
	want := configMap(t, shop(full), Configuration{SystemID: "1", Members: []string{"shop-1"}})
	if RepairConfigMap(fromAPIServer(t, want), want) != nil {
		t.Error("repaired, and nobody had changed it")
	}
	for why, edit := range map[string]func(*corev1.ConfigMap){
		"a key changed":   func(c *corev1.ConfigMap) { c.Data["pg_hba.conf"] = "host all all all trust" },
		"a key added":     func(c *corev1.ConfigMap) { c.Data["mine"] = "x" },
		"all keys gone":   func(c *corev1.ConfigMap) { c.Data = nil },
		"all labels gone": func(c *corev1.ConfigMap) { c.Labels = nil },
	} {
		edited := fromAPIServer(t, want)
		edit(edited)
		if diff := cmp.Diff(fromAPIServer(t, want), RepairConfigMap(edited, want)); diff != "" {
			t.Errorf("%s:\n%s", why, diff)
		}
	}
}

func TestRefusedConfigurationIsNamedFieldByField(t *testing.T) {
	c := shop(func(c *v1.PostgresCluster) {
		var list v1.ParameterValue
		if err := list.UnmarshalJSON([]byte(`[1]`)); err != nil {
			t.Fatal(err)
		}
		c.Spec.Postgres.Parameters = map[string]v1.ParameterValue{
			"listen_addresses":    v1.NewParameter("*"),
			"work_mem":            v1.NewParameter("4MB"),
			"log_disconnections=": v1.NewParameter("off"),
			"search_path":         list,
			"a":                   {},
		}
		c.Spec.Postgres.HBA = []string{"host all all all md5", "host all"}
	})
	want := `spec.postgres.parameters[a]: must be a string, a number or a boolean; quote it
spec.postgres.parameters[listen_addresses]: listen_addresses is set by the operator; restrict who may connect by spec.postgres.hba or a NetworkPolicy
spec.postgres.parameters[log_disconnections=]: "log_disconnections=" is not the name of a parameter; use letters, digits and '_', as in work_mem or auto_explain.log_min_duration
spec.postgres.parameters[search_path]: must be a string, a number or a boolean; quote it
spec.postgres.hba: hba line 2, "host all": has 2 fields; write TYPE DATABASE USER ADDRESS METHOD`
	err := CheckConfiguration(c)
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if made, err := NewConfigMap(c, Configuration{}); err == nil {
		t.Errorf("made %v", made)
	}
}

// whoever sets a password in the Secret finds it in every form, escaped
// by that form's rules.
func TestAppSecretFollowsItsPassword(t *testing.T) {
	c, ca := shop(), []byte("CA")
	made := NewLoginSecret(c, Logins(c)[0], NewPassword(), ca)
	if RepairLoginSecret(fromAPIServer(t, made), c, Logins(c)[0], ca, someday) != nil {
		t.Error("repaired, and nobody had changed it")
	}
	for _, password := range []string{"a:b@c/d#e%f g-é", strings.Repeat("x", 120), `back\slash'"`} {
		edited := fromAPIServer(t, made)
		edited.Data["password"] = []byte(password)
		edited.Data["mine"] = []byte("kept")
		repaired := RepairLoginSecret(edited, c, Logins(c)[0], ca, someday)
		want := fromAPIServer(t, NewLoginSecret(c, Logins(c)[0], password, ca))
		want.Data["mine"] = []byte("kept")
		if diff := cmp.Diff(want, repaired); diff != "" {
			t.Error(diff)
		}
		uri, err := url.Parse(string(repaired.Data["uri"]))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := uri.User.Password(); got != password {
			t.Errorf("the URI's password is %q, want %q", got, password)
		}
		jdbc, err := url.Parse(strings.TrimPrefix(string(repaired.Data["jdbc-uri"]), "jdbc:"))
		if err != nil {
			t.Fatal(err)
		}
		if got := jdbc.Query().Get("password"); got != password {
			t.Errorf("the JDBC URI's password is %q, want %q", got, password)
		}
	}
}

func TestAppSecretIsPutRight(t *testing.T) {
	c, ca := shop(), []byte("CA")
	made := NewLoginSecret(c, Logins(c)[0], "secret", ca)
	for why, edit := range map[string]func(*corev1.Secret){
		"another user name": func(s *corev1.Secret) { s.Data["username"] = []byte("postgres") },
		"no host":           func(s *corev1.Secret) { delete(s.Data, "host") },
		"an old authority":  func(s *corev1.Secret) { s.Data[CAKey] = []byte("OLD") },
		"no labels":         func(s *corev1.Secret) { s.Labels = nil },
	} {
		edited := fromAPIServer(t, made)
		edit(edited)
		if diff := cmp.Diff(fromAPIServer(t, made), RepairLoginSecret(edited, c, Logins(c)[0], ca, someday)); diff != "" {
			t.Errorf("%s:\n%s", why, diff)
		}
	}
	empty := fromAPIServer(t, made)
	empty.Data = nil
	repaired := RepairLoginSecret(empty, c, Logins(c)[0], ca, someday)
	if got := string(repaired.Data["password"]); got == "" || got == "secret" {
		t.Errorf("an emptied Secret gets the password %q", got)
	}
	if diff := cmp.Diff(fromAPIServer(t, NewLoginSecret(c, Logins(c)[0], string(repaired.Data["password"]), ca)), repaired); diff != "" {
		t.Error(diff)
	}
}

func TestPasswordsNeedNoEscaping(t *testing.T) {
	if password := NewPassword(); len(password) < 26 || url.QueryEscape(password) != password {
		t.Errorf("made %q", password)
	}
}

func TestCertificateSecretIsRepaired(t *testing.T) {
	c := shop()
	pair := pki.Pair{Cert: []byte("CERT"), Key: []byte("KEY")}
	old := pki.Pair{Cert: []byte("OLD"), Key: []byte("OLD")}
	now := someday
	cases := []struct{ want, edited *corev1.Secret }{
		{NewTLSSecret(c, "shop-1", []byte("CA"), pair, pair, ServerTLS{}), NewTLSSecret(c, "shop-1", []byte("OLD"), old, old, ServerTLS{})},
		{NewTLSSecret(c, "shop-1", []byte("CA"), pair, pair, ServerTLS{[]byte("BOTH"), pair}), NewTLSSecret(c, "shop-1", []byte("OLD"), old, old, ServerTLS{[]byte("CA"), old})},
		{NewCASecret(c, pair), NewCASecret(c, old)},
		{NewOperatorSecret(c, pki.Authorities{Signer: pair, Trusted: []byte("CA"), Since: now}, pair), NewOperatorSecret(c, pki.Authorities{Signer: old}, old)},
	}
	for _, test := range cases {
		if RepairSecret(fromAPIServer(t, test.want), test.want) != nil {
			t.Errorf("%s is repaired, and nobody had changed it", test.want.Name)
		}
		edited := fromAPIServer(t, test.edited)
		edited.Labels = nil
		if diff := cmp.Diff(fromAPIServer(t, test.want), RepairSecret(edited, test.want)); diff != "" {
			t.Error(diff)
		}
	}
}

// What a server shows no more is taken from its Secret, and what others have put there
// stays.
func TestE09ServerCertificatesComeAndGo(t *testing.T) {
	c, pair := shop(), pki.Pair{Cert: []byte("CERT"), Key: []byte("KEY")}
	own := NewTLSSecret(c, "shop-1", []byte("CA"), pair, pair, ServerTLS{})
	trusting := NewTLSSecret(c, "shop-1", []byte("CA"), pair, pair, ServerTLS{Trusted: []byte("BOTH")})
	showing := NewTLSSecret(c, "shop-1", []byte("CA"), pair, pair, ServerTLS{[]byte("BOTH"), pair})
	for _, step := range []struct{ live, want *corev1.Secret }{{own, trusting}, {trusting, showing}, {showing, trusting}, {trusting, own}, {showing, own}} {
		live, want := fromAPIServer(t, step.live), fromAPIServer(t, step.want)
		live.Data["mine"], want.Data["mine"] = []byte("kept"), []byte("kept")
		if diff := cmp.Diff(want, RepairTLSSecret(live, step.want)); diff != "" {
			t.Error(diff)
		}
		if repaired := RepairTLSSecret(want, step.want); repaired != nil {
			t.Errorf("repaired, and nobody had changed it: %v", repaired)
		}
	}
	if got := ServerTLSOf(showing); got.Shown.Cert == nil || got.Trusted == nil {
		t.Errorf("read as %+v", got)
	}
	if diff := cmp.Diff(ServerTLS{}, ServerTLSOf(nil)); diff != "" {
		t.Error(diff)
	}
}

func TestAuthoritiesAreReadFromTheirSecrets(t *testing.T) {
	c := shop()
	want := pki.Authorities{
		Wanted: pki.Pair{Cert: []byte("NEW"), Key: []byte("NEW KEY")}, Signer: pki.Pair{Cert: []byte("OLD"), Key: []byte("OLD KEY")},
		Trusted: []byte("OLD NEW"), Since: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC),
	}
	ca, operator := NewCASecret(c, want.Wanted), NewOperatorSecret(c, want, pki.Pair{})
	if diff := cmp.Diff(want, Authorities(fromAPIServer(t, ca), fromAPIServer(t, operator))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(pki.Authorities{}, Authorities(nil, nil)); diff != "" {
		t.Error(diff)
	}
	operator.Annotations[SinceAnnotation] = "yesterday"
	want.Since = time.Time{}
	if diff := cmp.Diff(want, Authorities(ca, operator)); diff != "" {
		t.Error(diff)
	}
}

// liveVolume is a claim of that size, bound to a volume of its own.
func liveVolume(t *testing.T, c *v1.PostgresCluster, size string) *corev1.PersistentVolumeClaim {
	claim := fromAPIServer(t, Volume(c, "shop-1"))
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	claim.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	claim.Spec.StorageClassName = ptr.To("standard")
	claim.Spec.VolumeName = "pv-1"
	claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	return claim
}

// sizes are quantities, and what the provisioner rounded up to is no drift.
func TestVolumeSizesCompareAsQuantities(t *testing.T) {
	cases := []struct {
		why, live, asked string
		// want is the request afterwards; empty: unchanged.
		want string
	}{
		{"the same", "1Gi", "1Gi", ""},
		{"the same in other units", "1024Mi", "1Gi", ""},
		{"the same in bytes", "1Gi", "1073741824", ""},
		{"powers of ten", "1G", "1000M", ""},
		{"a fraction", "1740Mi", "1.7Gi", "1.7Gi"},
		{"less was asked than is there", "2Gi", "1740Mi", ""},
		{"1G is less than 1Gi", "1Gi", "1G", ""},
		{"more", "1Gi", "3Gi", "3Gi"},
		{"more in other units", "1Gi", "1025Mi", "1025Mi"},
	}
	for _, c := range cases {
		asked := shop(func(p *v1.PostgresCluster) { p.Spec.Storage.Size = resource.MustParse(c.asked) })
		repaired := GrowVolume(liveVolume(t, asked, c.live), asked)
		switch {
		case c.want == "" && repaired != nil:
			t.Errorf("%s: request becomes %s", c.why, repaired.Spec.Resources.Requests.Storage())
		case c.want != "" && repaired == nil:
			t.Errorf("%s: it does not grow", c.why)
		case c.want != "":
			if diff := cmp.Diff(liveVolume(t, asked, c.want), repaired); diff != "" {
				t.Errorf("%s:\n%s", c.why, diff)
			}
			if GrowVolume(repaired, asked) != nil {
				t.Errorf("%s: the claim that has grown grows again", c.why)
			}
		}
	}
}

// The two volumes of an instance are told apart by their names, and each goes by
// its own part of the spec.
func TestVolumesGoByTheirOwnPartOfTheSpec(t *testing.T) {
	none, small := shop(), shop(wal("512Mi", "slow"))
	if WALVolume(none, "shop-2") != nil {
		t.Error("a WAL volume that nobody asks for")
	}
	live := fromAPIServer(t, WALVolume(small, "shop-2"))
	if live.Name != "shop-2-wal" || live.Labels[InstanceLabel] != "shop-2" {
		t.Errorf("it is %s of instance %s", live.Name, live.Labels[InstanceLabel])
	}
	if RepairVolume(live, small, false) != nil || IsOutdated(live, small) {
		t.Error("it is repaired, or outdated, and nobody had changed it")
	}
	fast, large := shop(wal("512Mi", "fast")), shop(wal("1Gi", "slow"))
	if !IsOutdated(live, none) || !HasStorageClass(live, none) || NeedsGrowth(live, none) {
		t.Error("a WAL volume that is not asked for any more should only be outdated")
	}
	if HasStorageClass(live, fast) || !HasStorageClass(live, large) || !NeedsGrowth(live, large) {
		t.Error("class or size is not that of spec.storage.wal")
	}
	if GrowVolume(live, large) != nil {
		t.Error("a claim without a volume grows")
	}
	live.Spec.VolumeName = "pv-1"
	if got := GrowVolume(live, large).Spec.Resources.Requests.Storage().String(); got != "1Gi" {
		t.Errorf("it grows to %s", got)
	}
	data := liveVolume(t, large, "1Gi")
	if NeedsGrowth(data, large) || !HasStorageClass(data, large) {
		t.Error("the data volume goes by spec.storage.wal")
	}
	pod, without := Pod(small, "shop-2", operatorImage), Pod(none, "shop-2", operatorImage)
	if !UsesVolume(pod, "shop-2-wal") || UsesVolume(without, "shop-2-wal") || !UsesVolume(without, "shop-2") {
		t.Error("the pod mounts other volumes than asked")
	}
	if Pod(small, "shop-2", operatorImage).Annotations[TemplateHashAnnotation] != Pod(large, "shop-2", operatorImage).Annotations[TemplateHashAnnotation] {
		t.Error("pods restart because a volume grows")
	}
}

func TestRetainDecidesWhoOwnsAVolume(t *testing.T) {
	keep, drop := shop(), shop(func(c *v1.PostgresCluster) { c.Spec.Storage.Retain = v1.DeleteVolumes })
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "mine"}

	kept := liveVolume(t, keep, "1Gi")
	kept.OwnerReferences = []metav1.OwnerReference{other}
	dropped := kept.DeepCopy()
	dropped.OwnerReferences = []metav1.OwnerReference{other, OwnerOf(drop)}

	if RepairVolume(kept, keep, false) != nil || RepairVolume(dropped, drop, false) != nil {
		t.Error("repaired, and nobody had changed it")
	}
	if diff := cmp.Diff(dropped, RepairVolume(kept, drop, false)); diff != "" {
		t.Errorf("Retain to Delete:\n%s", diff)
	}
	if diff := cmp.Diff(kept, RepairVolume(dropped, keep, false)); diff != "" {
		t.Errorf("Delete to Retain:\n%s", diff)
	}
}

func TestVolumeOfAnEarlierClusterIsAdopted(t *testing.T) {
	c := shop()
	volume := Volume(c, "shop-1")
	if IsAdopted(volume, c) {
		t.Error("a volume of this cluster counts as adopted")
	}
	if !IsAdopted(volume, shop(func(c *v1.PostgresCluster) { c.UID = "another life" })) {
		t.Error("a volume of an earlier cluster counts as made for this one")
	}
}

// A volume that went with its node is of no use to its cluster, and one like
// others to the next of the name.
func TestVolumeThatWentWithItsNode(t *testing.T) {
	c, next := shop(), shop(func(c *v1.PostgresCluster) { c.UID = "another life" })
	volume := liveVolume(t, c, "1Gi")
	lost := GiveUpVolume(volume, "node-1")
	if got := []string{LostNode(volume, c), LostNode(lost, c), LostNode(lost, next)}; !cmp.Equal(got, []string{"", "node-1", ""}) {
		t.Errorf("lost with %q", got)
	}
	want := volume.DeepCopy()
	want.Annotations[CreatedForAnnotation] = string(next.UID)
	if diff := cmp.Diff(want, RepairVolume(lost, next, true)); diff != "" {
		t.Errorf("adopted by the next cluster:\n%s", diff)
	}
}

// A headless Service that somebody made another one is headless again, or must
// be made anew where an address was given to it, which never changes.
func TestHeadlessStaysHeadless(t *testing.T) {
	pods := Services(shop())[3]
	elsewhere := liveService(t, pods)
	elsewhere.Spec.Type, elsewhere.Spec.ExternalName, elsewhere.Spec.ClusterIP = corev1.ServiceTypeExternalName, "evil.example", ""
	repaired := RepairService(elsewhere, pods)
	if MustRemakeService(elsewhere, pods) || repaired == nil || repaired.Spec.ClusterIP != corev1.ClusterIPNone || repaired.Spec.ExternalName != "" {
		t.Errorf("repaired: %+v", repaired)
	}
	addressed := liveService(t, pods)
	addressed.Spec.ClusterIP = "10.0.0.7"
	if !MustRemakeService(addressed, pods) {
		t.Error("a headless Service keeps an address")
	}
	for _, want := range Services(shop()) {
		if MustRemakeService(liveService(t, want), want) {
			t.Errorf("%s is as asked, and would be made anew", want.Name)
		}
	}
}

// C-31: a budget never blocks the drain of a cluster of one.
func TestC31TheBudgetLeavesOneInstanceAway(t *testing.T) {
	c := shop()
	if budget := DisruptionBudget(c, 1); budget != nil {
		t.Errorf("a cluster of one has a budget: %v", budget.Spec)
	}
	want := DisruptionBudget(c, 3)
	if got := want.Spec.MinAvailable.IntValue(); got != 2 {
		t.Errorf("of 3 instances %d must stay, want 2", got)
	}
	if RepairDisruptionBudget(fromAPIServer(t, want), want) != nil {
		t.Error("repaired, and nobody had changed it")
	}
	edited := fromAPIServer(t, DisruptionBudget(c, 5))
	edited.Labels = nil
	if diff := cmp.Diff(fromAPIServer(t, want), RepairDisruptionBudget(edited, want)); diff != "" {
		t.Error(diff)
	}
}

func TestInstanceNumbers(t *testing.T) {
	got := map[string]int{}
	for _, name := range []string{"shop-1", "shop-10", "shop-99", "shop-0", "shop-01", "shop--1", "shop-+1", "shop-1x", "shop-", "shop", "shopping-1", "shop-rw", "other-1"} {
		if n, ok := InstanceNumber("shop", name); ok {
			got[name] = n
			if Instance("shop", n) != name {
				t.Errorf("%s comes back as %s", name, Instance("shop", n))
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"shop-1": 1, "shop-10": 10, "shop-99": 99}, got); diff != "" {
		t.Error(diff)
	}
}

// Names of up to 50 characters, as the schema allows, leave every derived name
// legal as a DNS label, and as a host name of at most 64 characters.
func TestNamesFitTheirLimits(t *testing.T) {
	cluster := strings.Repeat("x", 50)
	for _, name := range []string{
		RWService(cluster), ROService(cluster), RService(cluster), PodsService(cluster), EndpointSlice(cluster), Lease(cluster),
		ConfigMap(cluster), AppSecret(cluster), OperatorSecret(cluster), CASecret(cluster), ServiceAccount(cluster),
		PDB(cluster), Instance(cluster, 99), TLSSecret(Instance(cluster, 99)), WALVolumeName(Instance(cluster, 99)),
	} {
		if len(name) > 63 {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
}
