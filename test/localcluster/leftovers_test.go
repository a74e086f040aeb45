package main

import (
	"reflect"
	"testing"
	"testing/fstest"
)

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 254:0 /v /var/lib/pgop-localcluster/volumes rw shared:7 - ext4 /dev/vda rw
31 30 7:0 / /var/lib/pgop-localcluster/volumes/pvc-1 rw shared:8 master:2 - xfs /dev/loop0 rw,attr2
32 30 7:1 / /var/lib/pgop-localcluster/volumes/with\040blank rw - xfs /dev/loop1 rw
33 27 7:2 / /var/lib/pgop-localcluster-api rw - xfs /dev/loop2 rw
40 27 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
41 27 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
42 27 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
broken line
`

func TestMountsBelow(t *testing.T) {
	mounts := parseMounts(mountinfo)
	tests := map[string]struct {
		dir  string
		want []string
	}{
		"inner mounts come first, neighbours with the same prefix do not come": {
			"/var/lib/pgop-localcluster",
			[]string{"/var/lib/pgop-localcluster/volumes/with blank", "/var/lib/pgop-localcluster/volumes/pvc-1", "/var/lib/pgop-localcluster/volumes"},
		},
		"the directory itself counts": {"/var/lib/pgop-localcluster-api", []string{"/var/lib/pgop-localcluster-api"}},
		"nothing is mounted there":    {"/var/lib/other", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mountsBelow(mounts, test.dir); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseMountsKnowsSharedMounts(t *testing.T) {
	for _, m := range parseMounts(mountinfo) {
		want := m.point == "/var/lib/pgop-localcluster/volumes" || m.point == "/var/lib/pgop-localcluster/volumes/pvc-1"
		if m.shared != want {
			t.Errorf("%s: shared is %t", m.point, m.shared)
		}
	}
}

func TestCgroupHierarchies(t *testing.T) {
	v2 := "42 27 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	tests := map[string]struct {
		mountinfo string
		want      []hierarchy
	}{
		"v2 beside v1 comes last": {mountinfo, []hierarchy{
			{root: "/sys/fs/cgroup/cpu,cpuacct", controllers: []string{"rw", "cpu", "cpuacct"}},
			{root: "/sys/fs/cgroup/systemd", controllers: []string{"rw", "name=systemd"}},
			{root: "/sys/fs/cgroup/unified", unified: true},
		}},
		"v2 alone": {v2, []hierarchy{{root: "/sys/fs/cgroup", unified: true}}},
		"neither":  {"", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := cgroupHierarchies(parseMounts(test.mountinfo)); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestLoopsBelow(t *testing.T) {
	sys := fstest.MapFS{
		"block/loop0/loop/backing_file": {Data: []byte("/state/volumes/pvc-1.img\n")},
		"block/loop1/loop/backing_file": {Data: []byte("/state/volumes/pvc-2.img (deleted)\n")},
		"block/loop2/loop/backing_file": {Data: []byte("/state-of-another/disk.img\n")},
		"block/loop3/size":              {Data: []byte("0\n")},
	}
	got, err := loopsBelow(sys, "/state")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/dev/loop0", "/dev/loop1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
