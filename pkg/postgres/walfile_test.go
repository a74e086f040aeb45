package postgres

import "testing"

func TestWALFileNames(t *testing.T) {
	for _, size := range []uint64{1 << 20, 16 << 20, 1 << 30} {
		for _, position := range []LSN{1, 0x3000148, 1<<32 - 1, 1 << 32, 5<<32 + 7<<25} {
			file := WALFileAt(3, position, size)
			if file.Start > position || position-file.Start >= LSN(size) {
				t.Errorf("%s is not in the segment from %s", position, file.Start)
			}
			if got, ok := ParseWALFile(file.Name(size), size); !ok || got != file {
				t.Errorf("%s: read %v from %s", position, got, file.Name(size))
			}
		}
	}
	if got := WALFileAt(1, 2<<32+0xA000028, 16<<20).Name(16 << 20); got != "00000001000000020000000A" {
		t.Error(got)
	}
}
