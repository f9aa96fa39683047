// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// Port is where the web servers and the virtual service listen.
const Port = 80

// Cluster is one that stays.
type Cluster struct {
	Spec     Spec         `json:"spec"`
	Ready    bool         `json:"ready"` // false: the command that builds it is still running, or was killed
	Virtual  []netip.Addr `json:"virtual"`
	Nodes    []Node       `json:"nodes"`
	Commands []string     `json:"commands"` // what configured the director, run in its namespace
}

// Node is a network namespace of a cluster.
type Node struct {
	Name      string       `json:"name"` // client1, director, server1, ...
	Namespace string       `json:"namespace"`
	Addresses []netip.Addr `json:"addresses"`
	PID       int          `json:"pid,omitempty"` // the process of a web server
	Running   bool         `json:"running"`       // whether that process runs
}

// IsServer reports whether the node is a real server.
func (n Node) IsServer() bool { return strings.HasPrefix(n.Name, "server") }

// Node finds a node by its name. "client" is the first client.
func (c *Cluster) Node(name string) (Node, error) {
	wanted := name
	if wanted == "client" {
		wanted = "client1"
	}
	var names []string
	for _, n := range c.Nodes {
		if n.Name == wanted {
			return n, nil
		}
		names = append(names, n.Name)
	}
	if !c.Ready {
		return Node{}, c.unfinished()
	}
	return Node{}, fmt.Errorf("cluster %s has no node %q, only %s", c.Spec.Name, name, strings.Join(names, ", "))
}

func (c *Cluster) unfinished() error {
	return fmt.Errorf("cluster %s is unfinished: remove it with: imbang-lab down %[1]s", c.Spec.Name)
}

// look finds out which web servers run.
func (c *Cluster) look() {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Running = n.PID != 0 && slices.Contains(host.PIDsInside(n.Namespace), n.PID)
	}
}

// whole reports whether every namespace is there.
func (c *Cluster) whole() bool {
	left, err := host.NamespacesOf(run(c.Spec.Name))
	return err == nil && c.Ready && !slices.ContainsFunc(c.Nodes, func(n Node) bool { return !slices.Contains(left, n.Namespace) })
}

// nodes lists the nodes of a built topology.
func nodes(t *topology.Cluster, families []topology.Family) (list []Node) {
	for i, c := range t.Clients {
		n := Node{Name: "client" + strconv.Itoa(i+1), Namespace: c.Namespace.Name()}
		for _, f := range families {
			n.Addresses = append(n.Addresses, c.Own[f])
		}
		list = append(list, n)
	}
	d := Node{Name: "director", Namespace: t.Director.Name()}
	for _, f := range families {
		d.Addresses = append(d.Addresses, t.Gateways(f)...)
	}
	list = append(list, d)
	for i, s := range t.Servers {
		n := Node{Name: "server" + strconv.Itoa(i+1), Namespace: s.Namespace.Name()}
		for _, f := range families {
			n.Addresses = append(n.Addresses, s.Addr[f])
		}
		list = append(list, n)
	}
	return list
}

// environment is this process's environment with the cluster's programs first
// in PATH.
func environment(name string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	return append(env, "PATH="+searchPath(name))
}

func searchPath(name string) string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return binDir(name) + ":" + path
}
