/** Kubeconfig files, as text. */
import { stringify } from 'yaml';
import type { Access } from './kube-request.ts';

/** One cluster, one user, one context named `test`. */
export function toKubeconfig(access: Access, namespace = 'default'): string {
  return stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'test',
    clusters: [
      {
        name: 'loopback',
        cluster: { server: access.server, 'certificate-authority-data': Buffer.from(access.ca).toString('base64') },
      },
    ],
    users: [{ name: 'user', user: { token: access.token } }],
    contexts: [{ name: 'test', context: { cluster: 'loopback', user: 'user', namespace } }],
  });
}
