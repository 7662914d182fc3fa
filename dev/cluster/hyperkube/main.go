// One program for every component of Kubernetes, chosen by the name it is called by or by its first argument.
//
// Seven separate programs share nearly all of their code, so that building and storing one costs a seventh of the room.
// It knows nothing of how a cluster is put together: that is dev/cluster/*.py.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components run a component and return the exit code of the process.
var components = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(newScheduler()) },
	"kubectl":                 runKubectl,
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func newScheduler() *cobra.Command { return scheduler.NewSchedulerCommand() }

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// kubectl prints its own errors and chooses its own exit codes; cli.Run would add a second line.
func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlerrors.CheckErr(err)
	}
	return 0
}

func main() {
	name := filepath.Base(os.Args[0])
	if _, known := components[name]; !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	run, known := components[name]
	if !known {
		names := make([]string, 0, len(components))
		for each := range components {
			names = append(names, each)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: hyperkube COMPONENT [flags], a component being one of %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}
