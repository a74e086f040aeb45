package postgres

import "testing"

func TestIsInstanceSlot(t *testing.T) {
	cases := map[string]bool{
		"my_shop_1":  true,
		"my_shop_12": true,
		"my_shop_":   false,
		"my_shop_01": false,
		"my_shop_1a": false,
		"my_shop":    false,
		"debezium":   false,
	}
	for slot, want := range cases {
		if got := IsInstanceSlot(slot, "my-shop"); got != want {
			t.Errorf("IsInstanceSlot(%q) = %v, want %v", slot, got, want)
		}
	}
	if !IsInstanceSlot(SlotName("my-shop-3"), "my-shop") {
		t.Error("the slot of an instance is not recognised")
	}
}

func TestLSNReadsWhatItWrites(t *testing.T) {
	for _, text := range []string{"0/0", "0/3000060", "1A/FF", "FFFFFFFF/FFFFFFFF"} {
		lsn, err := ParseLSN(text)
		if err != nil || lsn.String() != text {
			t.Errorf("ParseLSN(%q) = %v, %v", text, lsn, err)
		}
	}
	for _, text := range []string{"", "1", "x/1", "1/100000000"} {
		if lsn, err := ParseLSN(text); err == nil {
			t.Errorf("ParseLSN(%q) = %v, want an error", text, lsn)
		}
	}
}

func TestParseVersion(t *testing.T) {
	cases := map[string]Version{
		"postgres (PostgreSQL) 17.5 (Debian 17.5-1.pgdg130+1)\n": {17, "17.5"},
		"postgres (PostgreSQL) 18beta1\n":                        {18, "18beta1"},
		"15.14 (Debian 15.14-0+deb12u1)":                         {15, "15.14"},
		"16devel":                                                {16, "16devel"},
	}
	for text, want := range cases {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	if v, err := ParseVersion("sh: postgres: not found"); err == nil {
		t.Errorf("a text without version gives %v", v)
	}
}
