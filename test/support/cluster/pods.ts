/** Pods for tests, as users write them. */
import type { Kube } from './kube-request.ts';

/** A pod with one app container that a namespace accepts which enforces PodSecurity restricted. */
export function makePod(name: string, over: { metadata?: Kube; spec?: Kube; container?: Kube } = {}): Kube {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, ...over.metadata },
    spec: {
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: 'app',
          image: 'app:1',
          ports: [{ name: 'http', containerPort: 8080 }],
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
          ...over.container,
        },
      ],
      ...over.spec,
    },
  };
}

/** A Job whose pods have this template. */
export function makeJob(name: string, template: Kube): Kube {
  return { apiVersion: 'batch/v1', kind: 'Job', metadata: { name }, spec: { template } };
}
