package redisstore_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
)

// TLS and a user with only the rights that the README lists: requests and the subscription work.
func TestTLS(t *testing.T) {
	needTLS(t)
	certificate, key, trusted := certify(t)
	port := freePort(t)
	s, world := startServer(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no"), newWorld()
	s.admin(append([]any{"ACL", "SETUSER"}, rights...)...)
	options := optionsOf(s)
	options.Addr, options.TLSConfig = "127.0.0.1:"+port, &tls.Config{RootCAs: trusted}

	var all []*worker
	for range 2 {
		w := newWorkerOn(t, open(t, options, pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: policy()}, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	world.set(tool, false)
	d := drive(world, all, 5*time.Millisecond, tool)
	agree(t, 5*time.Second, all, tool, toolcircuit.StateClosed)
	d.end(t)
	require.Empty(t, all[0].heard())

	for name, change := range map[string]func(*redis.Options){
		"a server that is not trusted": func(o *redis.Options) { o.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()} },
		"no TLS":                       func(o *redis.Options) { o.TLSConfig = nil },
		"another password":             func(o *redis.Options) { o.Password = "guess" },
	} {
		other := options
		change(&other)
		_, err := open(t, other, redisstore.Options{}).Load(context.Background(), []string{tool})
		require.Error(t, err, name)
	}
}

// needTLS skips the test if the redis-server on PATH was built without TLS.
func needTLS(t *testing.T) {
	t.Helper()
	said, _ := exec.Command("redis-server", "--port", "0", "--tls-port", "0").CombinedOutput() // it ends at once
	if bytes.Contains(said, []byte("Bad directive")) {
		t.Skip("redis-server has no TLS")
	}
}

// certify makes a certificate for the loopback, in files, and the pool that trusts it.
func certify(t *testing.T) (certificate, key string, trusted *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	trusted = x509.NewCertPool()
	trusted.AddCert(parsed)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("certificate.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), trusted
}
