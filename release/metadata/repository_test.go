package metadata

import (
	"path/filepath"
	"testing"
)

//test:inputs */*/**

// Every provider of the repository says what it is, and its files agree.
func TestRepository(t *testing.T) {
	root := filepath.Join("..", "..")

	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}

	if len(all) < 4 {
		t.Errorf("%d providers found", len(all))
	}
}
