// Package secretmount keeps a folder in step with a Secret, as a kubelet does
// for a Pod: every key is a file, and all files change at once, by a swap of a
// symbolic link. It stands in for the kubelet where providers run as plain
// processes.
package secretmount
