package main

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// MarshalYAML writes a duration as it is read.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// MarshalYAML writes a size as it is read.
func (z Size) MarshalYAML() (any, error) { return z.String(), nil }

// shown is the configuration as doctor prints it: resolved, defaults filled
// in, keys left out where they were left out and that means something, and
// secrets hidden.
func (c *fileConfig) shown() *yaml.Node {
	shown := *c
	hide := func(keys []string) []string {
		hidden := make([]string, len(keys))
		for i := range keys {
			hidden[i] = "(hidden)"
		}
		return hidden
	}
	shown.Publish.Keys, shown.Admin.Keys = hide(c.Publish.Keys), hide(c.Admin.Keys)
	if c.Grip.Key != "" {
		shown.Grip.Key = "(hidden)"
	}
	if c.Bus.URL != "memory" {
		shown.Bus.URL = strings.Trim(c.busShown(), `"`)
	}
	var node yaml.Node
	if err := node.Encode(&shown); err != nil {
		panic(err) // of our own types
	}
	withoutNull(&node)
	return &node
}

// withoutNull takes out the keys that have no value.
func withoutNull(node *yaml.Node) {
	if node.Kind == yaml.MappingNode {
		kept := node.Content[:0]
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i+1].Tag != "!!null" {
				kept = append(kept, node.Content[i], node.Content[i+1])
			}
		}
		node.Content = kept
	}
	for _, child := range node.Content {
		withoutNull(child)
	}
}
