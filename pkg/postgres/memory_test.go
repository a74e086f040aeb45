package postgres

import "testing"

// the server's units, and not those of Kubernetes.
func TestParseBlocks(t *testing.T) {
	const mb = 1 << 20
	for value, want := range map[string]int64{
		"128MB": 128 * mb, "128 MB": 128 * mb, " 128MB ": 128 * mb, "0.5GB": 512 * mb, ".5GB": 512 * mb, "131072kB": 128 * mb, "134217728B": 128 * mb,
		"16384": 128 * mb, "0x4000": 128 * mb, "040000": 128 * mb, "1.6384e4": 128 * mb, "1TB": 1 << 40, "1.GB": 1 << 30,
		"128M": -1, "256Mi": -1, "128mb": -1, "128MB.": -1, "MB": -1, "": -1, "-1": -1, "many": -1, "1e300TB": -1,
	} {
		got, ok := ParseBlocks(value)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %d instead of %d", value, got, want)
		}
	}
}
