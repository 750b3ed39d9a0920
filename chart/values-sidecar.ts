/** Values of the sidecar: what pods get that say nothing else in their annotations. */
import { z } from 'zod';
import { duration, freeForm, PULL_POLICIES, port } from './values-forms.ts';

const TAKEOVER = /^(?:service|rename|same-port(?::[A-Za-z_][A-Za-z0-9_]*)?|env(?::[A-Za-z_][A-Za-z0-9_]*)?)$/;

/** The defaults of every sidecar. */
export const sidecar = z.strictObject({
  image: z.string().default('').describe("Its image, as one text. Empty: the same as the injector's."),
  imagePullPolicy: z.enum(PULL_POLICIES).default('IfNotPresent').describe('When its image is pulled.'),
  imagePullSecrets: z
    .array(z.string())
    .default([])
    .describe(
      'Names of Secrets that its image is pulled with. They must be in the namespace of each pod; pods get them beside their own.',
    ),
  takeover: z
    .string()
    .regex(TAKEOVER)
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
  resources: freeForm()
    .default({ requests: { cpu: '50m', memory: '64Mi' }, limits: { memory: '192Mi' } })
    .describe('Its resources: `requests` and `limits` of `cpu` and `memory`. An autoscaler by CPU needs the request.'),
  preStop: duration()
    .default('5s')
    .describe(
      'How long the app serves on after its end was announced, so that no request is sent to an app that is gone. `0s`: not at all.',
    ),
});
