package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TLSSpec is the certificate that clients see of the servers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.caSecret) || self.caSecret.size() == 0 || (has(self.serverSecret) && self.serverSecret.size() > 0)",message="spec.tls.caSecret: it vouches for the certificate of serverSecret, which is not set; name that, too, or remove caSecret. To let the operator sign with an authority of your own, put that into the Secret <cluster>-ca"
type TLSSpec struct {
	// Name of a Secret of your own, in the cluster's namespace, with a certificate and
	// its key, as cert-manager writes them: tls.crt, with the certificates between it
	// and its authority if there are any, and tls.key. It must bear the names
	// <cluster>-rw, -ro and -r, each with .<namespace>.svc. The Secret is never
	// written. What is renewed in it is in use within about two minutes, without a
	// restart. One that can't be used changes nothing, and the condition
	// CertificatesValid says why. Default: the operator issues certificates, and
	// renews them.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServerSecret string `json:"serverSecret,omitempty"`
	// Name of a Secret whose ca.crt, or else tls.crt, has the authorities of which one
	// vouches for the certificate of serverSecret. Default: ca.crt of serverSecret.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CASecret string `json:"caSecret,omitempty"`
}

// CertificateStatus is a certificate of the cluster that will end one day.
type CertificateStatus struct {
	// The Secret that it is in.
	Secret string `json:"secret"`
	// Until when it is valid: the one that is in use, as far as that is known, and of
	// several the one that ends first.
	NotAfter metav1.Time `json:"notAfter"`
	// What is wrong with it, such as that it ends soon.
	// +optional
	Message string `json:"message,omitempty"`
}
