package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// tool is a program that the cluster needs, and the Debian package that has it.
type tool struct {
	program, pkg string
}

var tools = []tool{
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
	{"mount", "mount"},
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"nft", "nftables"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"mkfs.xfs", "xfsprogs"},
	{"/usr/lib/cni/ptp", "containernetworking-plugins"},
}

// ensurePackages installs what is missing.
func ensurePackages(ctx context.Context, p progress) error {
	missing := missingPackages(tools, func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install packages: this machine lacks the programs of the Debian packages %v and has no apt-get", missing)
	}
	return p.step(fmt.Sprintf("installing Debian packages %v", missing), func() error {
		if err := install(ctx, missing); err == nil {
			return nil
		}
		// Most likely the list of packages is missing or old.
		if err := run(ctx, "", "apt-get", "update"); err != nil {
			return fmt.Errorf("install packages: %w", err)
		}
		return install(ctx, missing)
	})
}

func install(ctx context.Context, packages []string) error {
	args := append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends"}, packages...)
	if err := run(ctx, "", "env", args...); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	return nil
}

// missingPackages names, once each, the packages whose programs are not there.
func missingPackages(tools []tool, exists func(program string) bool) []string {
	var missing []string
	for _, t := range tools {
		if !exists(t.program) && !slices.Contains(missing, t.pkg) {
			missing = append(missing, t.pkg)
		}
	}
	return missing
}

// requireRoot fails early, where everything else would fail later.
func requireRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("localcluster needs root: it makes namespaces, mounts and cgroups")
	}
	return nil
}
