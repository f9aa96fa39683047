// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// audit makes an audit whose passes are close together.
func (r *rig) audit(repair bool) AuditReport {
	r.Helper()
	report, err := r.Audit(context.Background(), AuditOptions{Interval: 300 * time.Millisecond, Repair: repair})
	r.must(err)
	return report
}

func (r *rig) wantClean(when string) {
	r.Helper()
	if got := r.audit(false); !got.Clean() {
		for _, f := range got.Findings[:min(20, len(got.Findings))] {
			r.Errorf("%s: invented: %+v", when, f)
		}
	}
}

// auditServices are those of the auditor's tests: every kind of memory that
// schedulers have, persistence, firewall marks.
var auditServices = []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "fo", "ovf", "lblc", "lblcr", "dh", "sh", "mh", "twos"}

// auditRig has services 0, 1, ... of each scheduler with servers enough for trees, then
// a persistent one and one by a firewall mark.
func auditRig(t *testing.T) *rig {
	r := newRig(t, small)
	r.must(r.Batch(func() error {
		for i, scheduler := range auditServices {
			r.addService(tcpService(nthVIP(i), scheduler), 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4)
		}
		r.addService(persistent(tcpService(nthVIP(len(auditServices)), "rr")), 1, 1)
		r.addService(service(model.UDP, nthVIP(len(auditServices)+1), "rr"), 1, 1)
		return nil
	}))
	r.timeouts(time.Second, bpfobj.LbConnStateTCP_CLOSE, bpfobj.LbConnStateTCP_TIME_WAIT, bpfobj.LbConnStateCONN_UDP)
	return r
}

// traffic opens, uses, resets and reopens connections to all services from two
// threads until stop is called: packets of clients with ports from `from` on.
func (r *rig) traffic(services int) (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	var errs [2]error
	for thread := range errs {
		all.Go(func() {
			errs[thread] = r.ns.Do(func() error { return r.busy(thread, services, done) })
		})
	}
	return func() {
		close(done)
		all.Wait()
		r.must(errs[:]...)
	}
}

func (r *rig) busy(thread, services int, done chan struct{}) error {
	random := rand.New(rand.NewPCG(uint64(thread), 1))
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	flags := []string{"S", "S", "A", "F", "R", "A"}
	for {
		r.still.RLock()
		for range 50 {
			// So few that the table never fills, and flows are opened again and again.
			client := fmt.Sprintf("10.10.%d.%d:%d", 200+thread, random.IntN(100), 2000+random.IntN(4))
			at := random.IntN(services)
			p := testenv.TCP(client, nthVIP(at), flags[random.IntN(len(flags))])
			if at == len(auditServices)+1 {
				p = testenv.UDP(client, nthVIP(at), "question")
			}
			if _, err := run(r.progs.LbClient, context, p.Frame(), 0); err != nil && !errors.Is(err, errSum) {
				r.still.RUnlock()
				return err
			}
		}
		r.still.RUnlock()
		select {
		case <-done:
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

// A healthy table shows nothing, whatever passes meanwhile.
func TestAuditHealthy(t *testing.T) {
	r := auditRig(t)
	stop := r.traffic(len(auditServices) + 2)
	defer stop()
	for i := range 20 {
		r.wantClean(fmt.Sprintf("audit %d", i))
	}
}

// While the table grows and shrinks a sound one shows nothing, nor do connections that rest
// meanwhile, whose entries are led to from one bucket and another.
func TestAuditWhileBucketsChange(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1, 1)
	for i := range 500 {
		r.establish(nthClient(i), vip)
	}
	r.timeouts(300*time.Millisecond, bpfobj.LbConnStateTCP_SYN_RECV)
	r.whileSwelling(func() {
		for i := range 10 {
			r.wantClean(fmt.Sprintf("audit %d", i))
		}
	})
}

// A look-up finds a connection that rests, whichever bucket leads to it meanwhile.
func TestFoundWhileBucketsChange(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1, 1)
	const resting = 200
	var flows []bpfobj.LbFlow
	for i := range resting {
		r.establish(nthClient(i), vip)
	}
	r.must(r.eachEntry(t.Context(), 0, func(e *entry) error {
		flows = append(flows, e.Flow)
		return nil
	}))
	r.timeouts(300*time.Millisecond, bpfobj.LbConnStateTCP_SYN_RECV)
	looks, missed := 0, 0
	r.whileSwelling(func() {
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); looks++ {
			c, err := r.connOf(flows[looks%len(flows)])
			r.must(err)
			if c == nil {
				missed++
			}
		}
	})
	if len(flows) != resting || missed != 0 {
		t.Errorf("%d of %d looks miss one of %d connections, want %d", missed, looks, len(flows), resting)
	}
}

// whileSwelling has the table grow and shrink while something is tried, and expects that it did.
func (r *rig) whileSwelling(try func()) {
	r.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	var rose, fell int
	var err error
	all.Go(func() {
		err = r.ns.Do(func() (err error) {
			rose, fell, err = r.swell(done)
			return err
		})
	})
	try()
	close(done)
	all.Wait()
	r.must(err)
	if rose == 0 || fell == 0 {
		r.Errorf("the table grew %d times, and shrank %d times: the test shows nothing", rose, fell)
	}
}

// swell opens connections that end at once, and gives blocks back that are not used any more, again and
// again. It reports how often the number of buckets rose and fell by a fifth.
func (r *rig) swell(done chan struct{}) (rose, fell int, err error) {
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	was := 0
	for {
		reader, err := r.newBucketReader()
		if err != nil {
			return rose, fell, err
		}
		switch n := int(reader.buckets()); {
		case was == 0:
			was = n
		case n > was+was/5:
			rose, was = rose+1, n
		case n < was-was/5:
			fell, was = fell+1, n
		}
		select {
		case <-done:
			return rose, fell, nil
		default:
		}
		for i := 0; rose <= fell && i < 8000; i++ { // else it is to shrink
			if _, err := run(r.progs.LbClient, context, testenv.TCP(nthClient(1000+i), vip, "S").Frame(), 0); err != nil && !errors.Is(err, errSum) {
				return rose, fell, err
			}
		}
		time.Sleep(50 * time.Millisecond)
		if err := waitForPackets(r.maps.Barriers); err != nil {
			return rose, fell, err
		}
		if _, err := r.runTrim(); err != nil {
			return rose, fell, err
		}
	}
}

// Templates of calls are none of the faults, whatever becomes of them: of servers
// that send first, and of calls whose server was quiesced.
func TestAuditCalls(t *testing.T) {
	r := newRig(t, small)
	s := sipService()
	s.Timeout = 2 * time.Second
	r.addService(s, 1, 1)
	r.timeouts(2*time.Second, bpfobj.LbConnStateCONN_UDP)
	open := func(round int) {
		for i := range 40 {
			id := fmt.Sprintf("%d-%d@h", round, i%20)
			r.fromClient(testenv.UDP(sipClient(i%20), sipVIP, invite(id)))
			r.fromClient(testenv.UDP(fmt.Sprintf("10.10.7.%d:%d", i%20, 5060+i), sipVIP, invite(id)))
		}
		server := netip.AddrPortFrom(serverAddr(0), 8080).String()
		r.fromServer(testenv.UDP(server, fmt.Sprintf("10.10.8.%d:5060", round), invite(fmt.Sprintf("out%d@h", round))))
	}
	open(0)
	r.wantClean("calls")
	r.atLast(time.Minute, "an audit of calls", func() bool {
		open(0)
		got := r.audit(false)
		return got.Templates != 0 && got.Connections != 0
	})
	r.must(r.EditServer(s.Key, realServer(1, 0)))
	for round := range 4 {
		open(round)
		r.wantClean(fmt.Sprintf("round %d", round))
	}
	// A number of connections that is wrong is found.
	open(4) // which has not ended when it is audited
	c := r.aCall()
	result, err := r.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_CONTROLLED, Flow: c.Flow, Server: c.Server, Controlled: 3})
	r.must(err)
	if got := r.audit(false); result != repairDone || len(got.Findings) != 1 || got.Findings[0].Kind != AuditControlled.String() {
		t.Errorf("%s, %+v", result, got)
	}
}

// aCall is a template of a call that controls a connection.
func (r *rig) aCall() (found entry) {
	r.Helper()
	for _, c := range r.allEntries() {
		if _, ok := callNumber(c.Flow); ok && c.Fwmark > 0 && c.Flags&connDead == 0 && c.Expires > found.Expires {
			found = c
		}
	}
	if found.Flow.Template == 0 {
		r.Fatal("no template of a call controls a connection")
	}
	return found
}

// The auditor expects the trees that the kernel makes.
func TestAuditTreeRules(t *testing.T) {
	r := newRig(t, small)
	for i, s := range model.Schedulers() {
		for at, servers := range []int{0, 1, 2, treeFew - 1, treeFew, treeFew + 1} {
			weights := make([]int32, servers)
			for n := range weights {
				weights[n] = 1
			}
			service := tcpService(nthVIP(8*i+at), s.Name)
			r.addService(service, weights...)
			var svc bpfobj.LbService
			r.must(r.maps.Services.Lookup(toKey(service.Key), &svc))
			var state bpfobj.LbServiceState
			r.must(r.maps.ServiceStates.Lookup(svc.Id, &state))
			has := bpfobj.LbSchedulerSCHED_NONE
			if state.Tree.Tag != 0 {
				has = state.Tree.Rule
			}
			if want := treeRule(svc.Scheduler, svc.Count); has != want {
				t.Errorf("%s with %d servers: a tree by scheduler %d, expected %d", s.Name, servers, has, want)
			}
		}
	}
}
