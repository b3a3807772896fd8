// Package boundedserver serves HTTP to clients that are not trusted, with bounds in time and on connections: none holds
// the server by what it leaves unfinished.
package boundedserver
