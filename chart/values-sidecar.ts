/** Values of the sidecar: what pods get that say nothing else in their annotations. */
import { z } from 'zod';
import {
  CPU,
  DEFAULT_MEMORY_LIMIT,
  DEFAULT_MEMORY_REQUEST,
  IMAGE,
  MEMORY,
  OBJECT_NAME,
  TAKEOVER,
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
    .describe('What is kept for it.'),
  limits: z
    .strictObject({
      cpu: formed(CPU, '1').optional().describe('CPU limit of the sidecar. Default: no limit.'),
      memory: formed(MEMORY, DEFAULT_MEMORY_LIMIT).default(DEFAULT_MEMORY_LIMIT).describe('Most memory.'),
    })
    .prefault({})
    .describe('What it never exceeds.'),
});

/** The defaults of every sidecar. */
export const sidecar = z.strictObject({
  image: formed({ ...IMAGE, pattern: `^$|${IMAGE.pattern}` }, 'registry.example/sidegate:1.0.0')
    .default('')
    .describe("Its image, as one text. Empty: the same as the injector's."),
  imagePullPolicy: z.enum(PULL_POLICIES).default('IfNotPresent').describe('When its image is pulled.'),
  imagePullSecrets: z
    .array(formed(OBJECT_NAME, 'registry-login'))
    .default([])
    .describe(
      'Names of Secrets that its image is pulled with. They must be in the namespace of each pod; pods get them beside their own.',
    ),
  takeover: formed(TAKEOVER, 'service')
    .default('service')
    .describe(
      "How it gets the app's traffic: `service`, `rename`, `same-port`, `same-port:HOST`, `env` or `env:PORT`, where the name after the colon is the app's variable.",
    ),
  mode: z
    .enum(['auto', 'native', 'container'])
    .default('auto')
    .describe(
      "`native`: an init container that stays (Kubernetes 1.29 and newer). `container`: one of the pod's containers. `auto`: native where the cluster knows it.",
    ),
  port: port().default(8480).describe('The port that takes requests.'),
  adminPort: port().default(8481).describe('The port of health and metrics.'),
  movedPort: port().default(8482).describe('Where the app goes with `takeover: env`.'),
  resources: resources.prefault({}).describe('Its resources.'),
  preStop: formed(WHOLE_SECONDS, '5s')
    .default('5s')
    .describe(
      'How long the app serves on after its end was announced, so that no request is sent to an app that is gone. `0s`: not at all.',
    ),
});
