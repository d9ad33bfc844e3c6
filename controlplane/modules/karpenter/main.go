// Karpenter with its kwok provider, as upstream builds it, and two questions that upstream's binary
// does not answer: its version, and the CustomResourceDefinitions that it needs.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

var gitVersion = "unknown"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("karpenter", gitVersion)
		return
	}
	if len(os.Args) >= 2 && os.Args[1] == "--crds" {
		if err := writeDefinitions(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	run()
}

// writeDefinitions prints a JSON list, or writes it to the file that is named: a container without a
// shell has no other way.
func writeDefinitions(names []string) error {
	file := os.Stdout
	if len(names) > 0 {
		created, err := os.Create(names[0])
		if err != nil {
			return err
		}
		defer created.Close()
		file = created
	}
	definitions := append([]*apiextensionsv1.CustomResourceDefinition{}, apis.CRDs...)
	return json.NewEncoder(file).Encode(append(definitions, kwokapis.CRDs...))
}

func run() {
	ctx, manager := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plain := kwok.NewCloudProvider(ctx, manager.GetClient(), types)
	provider := overlay.Decorate(plain, manager.GetClient(), manager.InstanceTypeStore)
	cluster := state.NewCluster(manager.Clock, manager.GetClient(), provider)
	manager.WithControllers(ctx, controllers.NewControllers(
		ctx,
		manager.Manager,
		manager.Clock,
		manager.GetClient(),
		manager.EventRecorder,
		provider,
		plain,
		cluster,
		manager.InstanceTypeStore,
	)...).Start(ctx)
}
