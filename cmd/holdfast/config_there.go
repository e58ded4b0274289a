package main

import (
	"errors"
	"os"
	"path/filepath"
)

// notThere names the directories that are to be served and cannot be opened, one sentence with its place for each. It is asked at the start
// and at each reload: one that is lost later is told in the log, and its files are missing.
func (c *fileConfig) notThere() []string {
	asked := *c.source
	asked.faults = nil
	for i, route := range c.Routes {
		if route.Files == nil {
			continue
		}
		if err := openable(route.Files.Dir); err != nil {
			in := ""
			if !filepath.IsAbs(route.Files.Dir) {
				in, _ = os.Getwd()
				in = " in " + in
			}
			asked.wrong(item("routes", i)+".files.dir", "%q cannot be opened%s: %v (make the directory, or correct its path)",
				route.Files.Dir, in, reason(err))
		}
	}
	return asked.sentences()
}

// openable says why a directory cannot be served.
func openable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return root.Close()
}

// sentences are the faults so far, as err has them.
func (s *source) sentences() []string {
	var refused *configError
	if errors.As(s.err(), &refused) {
		return refused.sentences
	}
	return nil
}
