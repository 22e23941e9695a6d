package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A test run that is killed cannot stop its children.
func TestDiesWithItsParent(t *testing.T) {
	pids := make(chan int, 1)
	parent := startRole(t, "parent", Options{OnLine: func(line string) {
		if text, ok := strings.CutPrefix(line, "child "); ok {
			pid, _ := strconv.Atoi(text)
			pids <- pid
		}
	}})
	var child int
	select {
	case child = <-pids:
	case <-parent.Done():
		t.Fatalf("the parent started no child: %q", parent.LogTail(10))
	}
	if !runs(child) {
		t.Fatalf("the child %d does not run", child)
	}
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); runs(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the child %d outlives its parent", child)
		}
	}
}

// runs reports whether a process exists and is no zombie: an orphan is waited for
// by whichever process adopts it, and some take their time.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
