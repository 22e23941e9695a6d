// Package command is the command line of esoctl: arguments in, text and an exit
// code out. What is shown is computed elsewhere.
package command
