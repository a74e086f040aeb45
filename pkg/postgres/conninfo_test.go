package postgres

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const nasty = `a:b@c/d#e%f g-é?&=+'"\`

func TestConnInfoForms(t *testing.T) {
	c := ConnInfo{Host: "shop-rw", Port: 5432, DBName: "a/b", User: "u:1", Password: nasty,
		Options: map[string]string{"sslmode": "require"}}
	got := []string{c.KeyValue(), c.URI(), c.JDBC(), c.PgPass()}
	want := []string{
		`host='shop-rw' port='5432' dbname='a/b' user='u:1' password='a:b@c/d#e%f g-é?&=+\'"\\' sslmode='require'`,
		`postgresql://u%3A1:a%3Ab%40c%2Fd%23e%25f%20g-%C3%A9%3F%26%3D%2B%27%22%5C@shop-rw:5432/a%2Fb?sslmode=require`,
		`jdbc:postgresql://shop-rw:5432/a%2Fb?password=a%3Ab%40c%2Fd%23e%25f%20g-%C3%A9%3F%26%3D%2B%27%22%5C&sslmode=require&user=u%3A1`,
		`shop-rw:5432:a/b:u\:1:a\:b@c/d#e%f g-é?&=+'"\\`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestURIKeepsThePassword(t *testing.T) {
	for _, password := range []string{nasty, strings.Repeat("x", 120), "日本語 пароль"} {
		u, err := url.Parse(ConnInfo{Host: "h", User: "app", Password: password}.URI())
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := u.User.Password(); got != password {
			t.Errorf("got %q, want %q", got, password)
		}
	}
}

func TestIPv6StandsInBrackets(t *testing.T) {
	got := ConnInfo{Host: "fd00::1", Port: 5432}.URI()
	if want := "postgresql://[fd00::1]:5432/"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
