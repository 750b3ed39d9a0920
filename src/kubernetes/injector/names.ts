/** The names that the injector and all who look at its pods agree on; they are public for good. */

/** Of every label and annotation. */
export const DOMAIN = 'sidegate.dev';
/** `"true"` asks for the sidecar. */
export const INJECT_LABEL = `${DOMAIN}/inject`;
/** `"true"`: the sidecar is there. */
export const INJECTED_LABEL = `${DOMAIN}/injected`;
/** On a namespace, `"true"`: no pod without the sidecar. @public */
export const ENFORCE_LABEL = `${DOMAIN}/enforce`;
/** What was done to the pod, as JSON. */
export const STATUS_ANNOTATION = `${DOMAIN}/status`;
/** On the chart's policies: what a container `sidegate` may be, as JSON. */
export const RULES_ANNOTATION = `${DOMAIN}/sidecar-rules`;
export const CONTAINER = 'sidegate';
/** The sidecar's ports: data, and health with metrics. */
export const DATA_PORT = 'sidegate';
export const ADMIN_PORT = 'sidegate-admin';
export const CONFIG_VOLUME = 'sidegate-config';
export const SECRET_VOLUME = 'sidegate-secret-';
/** An empty folder that hides the ServiceAccount's token from the sidecar. */
export const NO_TOKEN_VOLUME = 'sidegate-no-token';
/** Where the API server mounts that token into each container that mounts nothing else there. */
export const TOKEN_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';
export const CONFIG_FOLDER = '/etc/sidegate/config';
export const SECRETS_FOLDER = '/etc/sidegate/secrets';
/** The key of the ConfigMap that holds the gate's config. */
export const CONFIG_KEY = 'gate.yaml';
/** Who has a main container names it so; kubectl and other injectors go by it. */
export const DEFAULT_CONTAINER_ANNOTATION = 'kubectl.kubernetes.io/default-container';
