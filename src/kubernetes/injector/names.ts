/** Names that the injector shares with everything that inspects its pods. They are part of the public API. */

/** Prefix of every label and annotation. */
export const DOMAIN = 'sidegate.dev';
/** `"true"` requests the sidecar. */
export const INJECT_LABEL = `${DOMAIN}/inject`;
/** `"true"`: the sidecar was injected. */
export const INJECTED_LABEL = `${DOMAIN}/injected`;
/** On a namespace, `"true"`: every pod must have the sidecar. @public */
export const ENFORCE_LABEL = `${DOMAIN}/enforce`;
/** The result of the injection, as JSON. */
export const STATUS_ANNOTATION = `${DOMAIN}/status`;
/** Why the API server's own policy did not inject the sidecar. */
export const DENIED_ANNOTATION = `${DOMAIN}/denied`;
/** On the chart's policies: what the container `sidegate` may contain, as JSON. */
export const RULES_ANNOTATION = `${DOMAIN}/sidecar-rules`;
export const CONTAINER = 'sidegate';
/** The sidecar's ports: data, and health with metrics. */
export const DATA_PORT = 'sidegate';
export const ADMIN_PORT = 'sidegate-admin';
export const CONFIG_VOLUME = 'sidegate-config';
export const SECRET_VOLUME = 'sidegate-secret-';
/** An empty directory that hides the ServiceAccount's token from the sidecar. */
export const NO_TOKEN_VOLUME = 'sidegate-no-token';
/** Where the token is mounted in containers that mount nothing else there. */
export const TOKEN_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';
export const CONFIG_FOLDER = '/etc/sidegate/config';
export const SECRETS_FOLDER = '/etc/sidegate/secrets';
/** Where the sidecar has the volume for its queue, writable. The injector allows no other container to mount that volume. */
export const QUEUE_FOLDER = '/var/lib/sidegate';
/** The ConfigMap key with the gate's config. */
export const CONFIG_KEY = 'gate.yaml';
/** The annotation for a pod's main container, which kubectl and other injectors use. */
export const DEFAULT_CONTAINER_ANNOTATION = 'kubectl.kubernetes.io/default-container';
