/** What a gate in a pod needs beside it, and the four deliveries by which it shows that it stands before the app. */
import { expect } from 'vitest';
import { stringify } from 'yaml';
import { makeDelivery, SECRET, unixNow } from '../deliveries.ts';
import type { Cluster } from './cluster.ts';
import type { Kube } from './kube-request.ts';
import { makePod } from './pods.ts';

/** The path that the config leads to the app. */
export const HOOK = '/hooks/billing';

/** The route of the config. */
export const HOOK_ROUTE = {
  name: 'billing',
  match: { path: HOOK },
  webhook: { keys: [{ name: 'current', secret: { file: '../secrets/signing/key' } }] },
};

/** Makes the ConfigMap `gate` and the Secret `signing` in a namespace; `sections` are merged over the gate's config. */
export async function createGateConfig(cluster: Cluster, namespace: string, sections: Kube = {}): Promise<void> {
  const text = stringify({ routes: [HOOK_ROUTE], ...sections });
  const core = (kind: string, name: string, fields: Kube): Kube => ({
    apiVersion: 'v1',
    kind,
    metadata: { name, namespace },
    ...fields,
  });
  await cluster.applyAll(stringify(core('ConfigMap', 'gate', { data: { 'gate.yaml': text } })));
  await cluster.applyAll(stringify(core('Secret', 'signing', { stringData: { key: SECRET } })));
}

/** Metadata by which a pod asks for the sidecar. */
export function askForGate(interception: string, more: { labels?: Kube; annotations?: Kube } = {}): Kube {
  const settings = { config: 'gate', secrets: 'signing', interception };
  const annotations = Object.fromEntries(Object.entries(settings).map(([key, value]) => [`sidegate.dev/${key}`, value]));
  return {
    labels: { 'sidegate.dev/inject': 'true', ...more.labels },
    annotations: { ...annotations, ...more.annotations },
  };
}

/** A pod that asks for the sidecar, whose app has all three probes. */
export function makeGatedPod(
  name: string,
  interception: string,
  over: { labels?: Kube; annotations?: Kube; container?: Kube; spec?: Kube } = {},
): Kube {
  const probe = (path: string): Kube => ({ httpGet: { path, port: 'http' }, periodSeconds: 1 });
  const probes = {
    startupProbe: { ...probe('/live'), failureThreshold: 100 },
    readinessProbe: probe('/ready'),
    livenessProbe: { ...probe('/live'), failureThreshold: 30 },
  };
  const metadata = askForGate(interception, over);
  return makePod(name, { metadata, container: { ...probes, ...over.container }, ...(over.spec && { spec: over.spec }) });
}

/** How the four were answered. */
export interface FourAnswers {
  readonly signed: string;
  readonly tampered: string;
  readonly replayed: string;
  readonly stale: string;
}

/** The answers of a gate whose app answers `handled`, on a node. */
export const FOUR_EXPECTED = {
  signed: '200 handled',
  tampered: expect.stringMatching(/^401 .*signature_mismatch/),
  replayed: expect.stringMatching(/^200 .*duplicate/),
  stale: expect.stringMatching(/^401 .*timestamp_outside_tolerance/),
};

/** Sends a signed delivery, a tampered one, the first one again and a stale one; gives status and text of each answer. */
export async function sendFour(base: string): Promise<FourAnswers> {
  const send = async ({ headers, body }: { headers: Record<string, string>; body: Buffer }): Promise<string> => {
    const response = await fetch(`${base}${HOOK}`, { method: 'POST', headers, body: new Uint8Array(body) });
    return `${response.status} ${(await response.text()).trim()}`;
  };
  const good = makeDelivery();
  const bent = makeDelivery();
  return {
    signed: await send(good),
    tampered: await send({ ...bent, body: Buffer.concat([bent.body, Buffer.from(' ')]) }),
    replayed: await send(good),
    stale: await send(makeDelivery({ timestamp: unixNow() - 3_600 })),
  };
}
