// Makes the certificates of one cluster: reads what is wanted as JSON, writes NAME.crt and NAME.key.
//
// It exists because openssl is not installed everywhere. It knows nothing of Kubernetes: names and hosts come with
// the request. Every key is new each time.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

type certificate struct {
	Name          string   `json:"name"`
	CommonName    string   `json:"common_name"`
	Organizations []string `json:"organizations"`
	Hosts         []string `json:"hosts"`
}

type request struct {
	Directory    string        `json:"directory"`
	Authority    string        `json:"authority"`
	ValidDays    int           `json:"valid_days"`
	Certificates []certificate `json:"certificates"`
	SigningKey   string        `json:"signing_key"`
}

type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "certificates:", err)
		os.Exit(1)
	}
}

func run() error {
	var wanted request
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		return fmt.Errorf("the request on standard input is not valid: %w", err)
	}
	until := time.Now().Add(time.Duration(wanted.ValidDays) * 24 * time.Hour)
	authority, err := makeAuthority(wanted, until)
	if err != nil {
		return err
	}
	for _, each := range wanted.Certificates {
		if err := issue(wanted.Directory, authority, each, until); err != nil {
			return err
		}
	}
	return makeSigningKey(wanted)
}

// makeAuthority makes the certificate that everybody of this cluster trusts, and nobody else.
func makeAuthority(wanted request, until time.Time) (*signer, error) {
	template := x509.Certificate{
		Subject:               pkix.Name{CommonName: wanted.Authority},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	self := &signer{certificate: &template, key: key}
	if err := sign(wanted.Directory, "ca", self, &template, key, until); err != nil {
		return nil, err
	}
	return self, nil
}

func issue(directory string, by *signer, wanted certificate, until time.Time) error {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: wanted.CommonName, Organization: wanted.Organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range wanted.Hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return sign(directory, wanted.Name, by, &template, key, until)
}

func sign(directory, name string, by *signer, template *x509.Certificate, key *ecdsa.PrivateKey, until time.Time) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	// A clock that is a little behind must not find the certificate in its future.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = until
	signed, err := x509.CreateCertificate(rand.Reader, template, by.certificate, &key.PublicKey, by.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(directory, name+".crt", "CERTIFICATE", signed, 0o644); err != nil {
		return err
	}
	return write(directory, name+".key", "PRIVATE KEY", private, 0o600)
}

// makeSigningKey makes the key pair of service account tokens.
func makeSigningKey(wanted request) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := write(wanted.Directory, wanted.SigningKey+".pub", "PUBLIC KEY", public, 0o644); err != nil {
		return err
	}
	return write(wanted.Directory, wanted.SigningKey+".key", "PRIVATE KEY", private, 0o600)
}

func write(directory, file, kind string, data []byte, mode os.FileMode) error {
	encoded := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
	return os.WriteFile(filepath.Join(directory, file), encoded, mode)
}
