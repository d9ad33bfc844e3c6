// Command scheduling reads pods as JSON and lets Karpenter's scheduler choose machines for them,
// among the 400 instance types of its own benchmark and without any Nodes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/test"
)

const instanceTypes = 400

// result is what one Solve took and chose.
type result struct {
	Seconds        float64 `json:"seconds"`
	Machines       int     `json:"machines"`
	DollarsPerHour float64 `json:"dollarsPerHour"`
	Unplaced       int     `json:"unplaced"`
}

func main() {
	log.SetLogger(logging.NopLogger)
	var pods []*corev1.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		fail(err)
	}
	found, err := solve(pods)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// solve times Solve alone: as in Karpenter's benchmark, the topology and the scheduler are built
// before.
func solve(pods []*corev1.Pod) (result, error) {
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	scheduler, err := newScheduler(ctx, pods)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	solved, err := scheduler.Solve(ctx, pods)
	if err != nil {
		return result{}, err
	}
	found := result{
		Seconds:  time.Since(began).Seconds(),
		Machines: len(solved.NewNodeClaims),
		Unplaced: len(solved.PodErrors),
	}
	for _, claim := range solved.NewNodeClaims {
		found.DollarsPerHour += cheapest(claim)
	}
	return found, nil
}

func newScheduler(ctx context.Context, pods []*corev1.Pod) (*scheduling.Scheduler, error) {
	pool := test.NodePool(v1.NodePool{Spec: v1.NodePoolSpec{Limits: v1.Limits{
		corev1.ResourceCPU:    resource.MustParse("10000000"),
		corev1.ResourceMemory: resource.MustParse("10000000Gi"),
	}}})
	provider := fake.NewCloudProvider()
	types := fake.InstanceTypes(instanceTypes)
	provider.InstanceTypes = types
	byPool := map[string][]*cloudprovider.InstanceType{pool.Name: types}
	client, now := fakeclient.NewFakeClient(), &clock.RealClock{}
	cluster := state.NewCluster(now, client, provider)
	pools, option := []*v1.NodePool{pool}, scheduling.NumConcurrentReconciles(5)
	topology, err := scheduling.NewTopology(ctx, client, cluster, nil, pools, byPool, pods, option)
	if err != nil {
		return nil, err
	}
	recorder := events.NewRecorder(&record.FakeRecorder{})
	return scheduling.NewScheduler(
		ctx, client, pools, cluster, nil, topology, byPool, nil, recorder, now, nil, nil, option,
	), nil
}

// cheapest is the price of the machine that would be launched for a claim.
func cheapest(claim *scheduling.NodeClaim) float64 {
	first := claim.InstanceTypeOptions.OrderByPrice(claim.Requirements)[0]
	return first.Offerings.Available().Compatible(claim.Requirements).Cheapest().Price
}
