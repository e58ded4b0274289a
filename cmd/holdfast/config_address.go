package main

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// address is one to bind: a text, or, with TLS, a mapping.
type address struct {
	Address string    `yaml:"address" required:"\":8443\""`
	TLS     *tlsFiles `yaml:"tls"`
}

// tlsFiles names the files of a listener's TLS, in PEM. With ClientCA a client
// needs a certificate that one of those in it has signed.
type tlsFiles struct {
	Cert     string `yaml:"cert" required:"/etc/tls/tls.crt"`
	Key      string `yaml:"key" required:"/etc/tls/tls.key"`
	ClientCA string `yaml:"client_ca"`
}

// addresses is one address or a list of them.
type addresses []address

// plainAddresses are addresses without TLS.
func plainAddresses(texts ...string) addresses {
	list := make(addresses, len(texts))
	for i, text := range texts {
		list[i].Address = text
	}
	return list
}

// asksClients reports whether whoever connects needs a certificate.
func (a address) asksClients() bool { return a.TLS != nil && a.TLS.ClientCA != "" }

// String tells addresses apart; one without TLS is as it was written.
func (a address) String() string {
	if a.TLS == nil {
		return a.Address
	}
	return fmt.Sprintf("{%s %+v}", a.Address, *a.TLS)
}

// MarshalYAML writes an address as it is read.
func (a address) MarshalYAML() (any, error) {
	if a.TLS == nil {
		return a.Address, nil
	}
	files := map[string]string{"cert": a.TLS.Cert, "key": a.TLS.Key}
	if a.TLS.ClientCA != "" {
		files["client_ca"] = a.TLS.ClientCA
	}
	return map[string]any{"address": a.Address, "tls": files}, nil
}

// addressNeed and addressesNeed name what is needed, in a sentence.
const (
	addressNeed   = "an address"
	addressesNeed = "an address or a list of them"
)

// decodeAddress reads an address, or those of a list; false: into is neither.
func (d *decoder) decodeAddress(path string, node *yaml.Node, into reflect.Value, tag reflect.StructTag) bool {
	switch into.Type() {
	case reflect.TypeFor[addresses]():
		if node.Kind == yaml.SequenceNode {
			d.list(path, node, into, tag)
			return true
		}
		one := reflect.New(reflect.TypeFor[address]()).Elem()
		d.textOrMapping(path, node, one, tag, addressesNeed)
		into.Set(reflect.ValueOf(addresses{one.Interface().(address)}))
		return true
	case reflect.TypeFor[address]():
		d.textOrMapping(path, node, into, tag, addressNeed)
		return true
	}
	return false
}

// textOrMapping reads a value that is a mapping, or its first key's text alone.
func (d *decoder) textOrMapping(path string, node *yaml.Node, into reflect.Value, tag reflect.StructTag, need string) {
	switch {
	case node.Kind == yaml.MappingNode:
		d.structure(path, node, into)
	case node.Kind != yaml.ScalarNode || isNull(node):
		d.mismatch(path, node, need, tag)
	default:
		d.scalar(path, node, into.Field(0), tag)
	}
}

// addressPath is where an address's text stands: by itself, or in a mapping.
func (c *fileConfig) addressPath(path string) string {
	if inside := path + ".address"; c.source.isSet(inside) {
		return inside
	}
	return path
}

// secured is a listener with TLS and where it stands in the file.
type securedAddress struct {
	path string // of the address, as listen[0]
	address
}

// securedAddresses are those of the configuration that have TLS.
func (c *fileConfig) securedAddresses() (list []securedAddress) {
	add := func(path string, a address) {
		if a.TLS != nil {
			list = append(list, securedAddress{path, a})
		}
	}
	for i, a := range c.Listen {
		add(c.listenPath(i), a)
	}
	add("publish.listen", c.Publish.Listen)
	add("admin.listen", c.Admin.Listen)
	return list
}

// checkTLSFiles wants names that files can have; whether there are such files is
// asked when they are to be served (certificateFaults).
func (c *fileConfig) checkTLSFiles(path string, files *tlsFiles) {
	if files == nil {
		return
	}
	for _, file := range []struct{ key, name, example string }{
		{"cert", files.Cert, "write /etc/tls/tls.crt"}, {"key", files.Key, "write /etc/tls/tls.key"},
		{"client_ca", files.ClientCA, "write /etc/tls/ca.crt, or take it out"},
	} {
		at := path + ".tls." + file.key
		switch {
		case !c.source.isSet(at):
		case file.name == "":
			c.source.wrong(at, "is empty where a file is needed (%s)", file.example)
		case strings.ContainsFunc(file.name, isControl):
			c.source.wrong(at, "%s has a control character (take it out)", quote(file.name))
		}
	}
}
