// Package clusterexternalsecret keeps an ExternalSecret in every namespace that
// a ClusterExternalSecret matches, and in no other. It decides from caches
// alone, and makes a request only where something differs. It never touches an
// ExternalSecret that the ClusterExternalSecret does not control, and puts
// finalizers on nothing.
package clusterexternalsecret
