// Package docs holds the documentation to what is there.
package docs
