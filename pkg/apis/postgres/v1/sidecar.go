package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// EnvVar is an environment variable, as in a container.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// Its value; $(OTHER) stands for that of a variable before it. Default empty.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Value string `json:"value,omitempty"`
	// Where the value comes from, instead of value.
	// +optional
	ValueFrom *EnvSource `json:"valueFrom,omitempty"`
}

// EnvSource is where the value of an environment variable comes from, as in a
// container.
type EnvSource struct {
	// A key of a Secret in the cluster's namespace.
	// +optional
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`
	// A key of a ConfigMap in the cluster's namespace.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`
	// A field of the pod, such as spec.nodeName.
	// +optional
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`
}

// Sidecar is a container that runs beside the server. Its fields are those of a
// container in a pod.
type Sidecar struct {
	// Name of the container: lower case letters, digits and '-'; not postgres or
	// agent, which are the operator's.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="spec.pod.sidecars[].name: lower case letters, digits and '-' only, beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres', 'agent'])",message="spec.pod.sidecars[].name: postgres and agent are the operator's own containers; choose another name"
	Name string `json:"name"`
	// Container image.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image"`
	// When the image is pulled: Always, IfNotPresent or Never. Default: Always for
	// the tag latest or none, else IfNotPresent.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// What is run. Default: the image's entrypoint.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=32768
	// +listType=atomic
	// +optional
	Command []string `json:"command,omitempty"`
	// Arguments of what is run. Default: the image's.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=32768
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`
	// Environment variables, as in a pod.
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// Secrets and ConfigMaps whose keys become environment variables, as in a pod.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Ports that the container listens on, as in a pod. All containers of a pod
	// share their ports: 5432, 8080 and 8443 are taken.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, !(p.containerPort in [5432, 8080, 8443]))",message="spec.pod.sidecars[].ports: 5432, 8080 and 8443 are taken by the server and its agent; let the sidecar listen on another port"
	// +listType=atomic
	// +optional
	Ports []corev1.ContainerPort `json:"ports,omitempty"`
	// Compute resources of the container, as in a pod; they add to those of the
	// server.
	// +optional
	Resources SidecarResources `json:"resources,omitzero"`
	// When the container is restarted because it hangs, as in a pod. There is no
	// readinessProbe: it would take the instance from its clients.
	// +optional
	LivenessProbe *SidecarProbe `json:"livenessProbe,omitempty"`
	// As in a pod. What is left out is filled in as the Pod Security Standard
	// "restricted" wants it: no privilege escalation, no capabilities. The user is
	// that of the server unless runAsUser says otherwise.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
	// Volumes of the pod that the container sees.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	VolumeMounts []SidecarMount `json:"volumeMounts,omitempty"`
}

// SidecarResources are requests and limits of a sidecar.
type SidecarResources struct {
	// The most that the container may use.
	// +optional
	Limits SidecarQuantities `json:"limits,omitzero"`
	// What the scheduler sets aside for the container.
	// +optional
	Requests SidecarQuantities `json:"requests,omitzero"`
}

// SidecarQuantities are amounts of compute resources.
type SidecarQuantities struct {
	// Processor time in cores, such as 100m; no number of bytes.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="spec.pod.sidecars[].resources: cpu is a quantity, such as 100m"
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory in bytes, such as 64Mi.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="spec.pod.sidecars[].resources: memory is a quantity, such as 64Mi"
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Space on the node's disk in bytes, such as 1Gi.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="spec.pod.sidecars[].resources: ephemeral-storage is a quantity, such as 1Gi"
	// +optional
	EphemeralStorage *resource.Quantity `json:"ephemeral-storage,omitempty"`
}

// SidecarProbe asks a sidecar whether it lives. Exactly one of exec, httpGet and
// tcpSocket says how.
//
// +kubebuilder:validation:XValidation:rule="[has(self.exec), has(self.httpGet), has(self.tcpSocket)].filter(given, given).size() <= 1",message="spec.pod.sidecars[].livenessProbe: name exactly one of exec, httpGet and tcpSocket"
type SidecarProbe struct {
	// Runs a command in the container; it lives if that ends well.
	// +optional
	Exec *SidecarExec `json:"exec,omitempty"`
	// Asks by HTTP; it lives if the answer is a success.
	// +optional
	HTTPGet *SidecarHTTPGet `json:"httpGet,omitempty"`
	// Opens a connection; it lives if that succeeds.
	// +optional
	TCPSocket *SidecarTCPSocket `json:"tcpSocket,omitempty"`
	// Seconds from the container's start to the first question. Default: none.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`
	// Seconds that an answer may take. Default: one.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// Seconds between questions. Default: ten.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// Failures in a row that restart the container. Default: three.
	// +kubebuilder:validation:Minimum=0
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// SidecarExec is a command that tells whether a sidecar lives.
type SidecarExec struct {
	// The command with its arguments; no shell runs it.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Command []string `json:"command"`
}

// SidecarHTTPGet is a request that tells whether a sidecar lives.
type SidecarHTTPGet struct {
	// Path of the request. Default /.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Path string `json:"path,omitempty"`
	// Number of the port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// HTTP or HTTPS. Default: HTTP.
	// +kubebuilder:validation:Enum=HTTP;HTTPS
	// +optional
	Scheme corev1.URIScheme `json:"scheme,omitempty"`
}

// SidecarTCPSocket is a port that tells whether a sidecar lives.
type SidecarTCPSocket struct {
	// Number of the port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// SidecarMount is a volume of the pod in a sidecar.
type SidecarMount struct {
	// Name of the volume. There is one: run, the directory of the server's socket.
	// It is mounted read-only, which suffices to connect. The server lets in over
	// the socket, without a password and as superuser, who runs as its own user.
	// The server's data and keys are not shared.
	// +kubebuilder:validation:Enum=run
	Name string `json:"name"`
	// Where in the container, such as /run/postgresql.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	MountPath string `json:"mountPath"`
}
