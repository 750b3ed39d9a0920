/** Values of the sidecar: the defaults for pods whose annotations do not override them. */
import { z } from 'zod';
import {
  CPU,
  DEFAULT_MEMORY_LIMIT,
  DEFAULT_MEMORY_REQUEST,
  IMAGE,
  INTERCEPTION,
  MEMORY,
  OBJECT_NAME,
  WHOLE_SECONDS,
} from '../src/kubernetes/injector/kubernetes-values.ts';
import { formed, PULL_POLICIES, port } from './values-forms.ts';

const resources = z.strictObject({
  requests: z
    .strictObject({
      cpu: formed(CPU, '50m').default('50m').describe('CPU request of the sidecar. An autoscaler by CPU needs them.'),
      memory: formed(MEMORY, DEFAULT_MEMORY_REQUEST).default(DEFAULT_MEMORY_REQUEST).describe('Memory request of the sidecar.'),
    })
    .prefault({})
    .describe('Resource requests.'),
  limits: z
    .strictObject({
      cpu: formed(CPU, '1').optional().describe('CPU limit of the sidecar. Default: no limit.'),
      memory: formed(MEMORY, DEFAULT_MEMORY_LIMIT).default(DEFAULT_MEMORY_LIMIT).describe('Memory limit.'),
    })
    .prefault({})
    .describe('Resource limits.'),
});

/** The defaults of every sidecar. */
export const sidecar = z.strictObject({
  image: formed({ ...IMAGE, pattern: `^$|${IMAGE.pattern}` }, 'registry.example/sidegate:1.0.0')
    .default('')
    .describe("Image reference. Empty: the injector's image."),
  imagePullPolicy: z.enum(PULL_POLICIES).default('IfNotPresent').describe('Pull policy of the image.'),
  imagePullSecrets: z
    .array(formed(OBJECT_NAME, 'registry-login'))
    .default([])
    .describe('Names of image pull secrets, which must exist in the namespace of each pod. They are added to those of the pod.'),
  interception: formed(INTERCEPTION, 'service')
    .default('service')
    .describe(
      "Interception mode: `service`, `rename`, `same-port`, `same-port:HOST`, `env` or `env:PORT`. The name after the colon is the app's environment variable.",
    ),
  mode: z
    .enum(['auto', 'native', 'container'])
    .default('auto')
    .describe(
      '`native`: an init container that keeps running (Kubernetes 1.29 and newer). `container`: a regular container. `auto`: native if the cluster supports it.',
    ),
  port: port().default(8480).describe('Port for requests.'),
  adminPort: port().default(8481).describe('Port of health checks and metrics.'),
  movedPort: port().default(8482).describe('Port that the app listens on with `interception: env`.'),
  resources: resources.prefault({}).describe('Resources of the container.'),
  preStop: formed(WHOLE_SECONDS, '5s')
    .default('5s')
    .describe(
      'How long the app keeps running after termination starts, so that no request reaches an app that has already stopped. `0s` disables the delay.',
    ),
});
