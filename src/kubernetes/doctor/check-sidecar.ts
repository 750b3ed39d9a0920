/** Checks whether the container `sidegate` of each pod is what the injector creates, because labels and names prove nothing. */
import { CONTAINER } from '../injector/names.ts';
import { findDifferences, findPodFaults, type PodFault } from '../injector/sidecar-check.ts';
import { isAllowedImage, repositoryOf } from '../injector/sidecar-rules.ts';
import { configNameOf } from './check-config.ts';
import { type Facts, keyOf, oncePer } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { Container, Pod, PodSpec, Volume } from './objects.ts';
import { findRace, findSidecar, isProtected, isReady } from './sidecar.ts';
import { restartOf, type Workload } from './workloads.ts';

/** Whether the pod has a sidecar that keeps running and is as the injector creates it. */
export const isGate = oncePer(
  (pod: Pod, facts: Facts): boolean =>
    isProtected(pod) && differencesOf(pod, facts).length === 0 && !findPodFaults({ ...pod }).some(({ kind }) => kind === 'end'),
);

/** Whether the gate itself confirmed it: something did, and no other container could have. */
export function isConfirmed(pod: Pod, facts: Facts): boolean {
  return findDoubt(pod, facts) === undefined && isAnswered(pod, facts);
}

/** Why another container could have responded, or gets requests beside the gate. */
function findDoubt(pod: Pod, facts: Facts): string | undefined {
  return findRace(pod) ?? findSharing(pod, facts) ?? findPower(pod);
}

/** With these, a container can redirect the pod's traffic, or take over other processes or the node. */
const CAPABILITIES: ReadonlySet<string> = new Set([
  'ALL',
  'BPF',
  'CHECKPOINT_RESTORE',
  'DAC_READ_SEARCH',
  'NET_ADMIN',
  // Runtimes give it to most containers by default; one that asks for it means to write packets.
  'NET_RAW',
  'PERFMON',
  'SYS_ADMIN',
  'SYS_MODULE',
  'SYS_PTRACE',
  'SYS_RAWIO',
  // It sets the clock of the node, by which the gate checks timestamps.
  'SYS_TIME',
]);

/** Which container could redirect the traffic of the sidecar, or replace its process. Changes by an init container last. */
function findPower({ spec }: Pod): string | undefined {
  const drivers = new Map((spec.volumes ?? []).flatMap(toDriver));
  const powers = othersOf(spec).flatMap(({ name, securityContext = {}, volumeMounts = [], ...rest }) => {
    const { privileged, capabilities } = securityContext;
    const added = capabilities?.add?.find((each) => CAPABILITIES.has(each.toUpperCase().replace(/^CAP_/, '')));
    const mount = volumeMounts.find((each) => drivers.has(each.name));
    const device = findDevice(rest);
    if (privileged === true) return [`${name} (privileged)`];
    if (added !== undefined) return [`${name} (${added})`];
    if (mount !== undefined) return [`${name} (${drivers.get(mount.name)})`];
    return device === undefined ? [] : [`${name} (device ${device})`];
  });
  return powers.length === 0 ? undefined : `another container could take its traffic or replace it: ${listNames(powers)}`;
}

/** Drivers whose volumes hold only secrets and certificates, with any options. */
const FILE_DRIVERS: ReadonlySet<string> = new Set(['secrets-store.csi.k8s.io', 'csi.cert-manager.io', 'csi.spiffe.io']);

/** A volume with a path of the node, or of a driver to which the pod itself gives options, and which may mount such a path. */
function toDriver({ name, hostPath, csi, flexVolume }: Volume): readonly (readonly [string, string])[] {
  if (hostPath) return [[name, `hostPath ${hostPath.path}`]];
  const { driver } = csi ?? flexVolume ?? {};
  return driver === undefined || FILE_DRIVERS.has(driver) ? [] : [[name, `volume of ${driver}`]];
}

/** A device of the node, whose driver decides what it gives access to: a raw block device, a claim (DRA), or a resource of a device plug-in. */
function findDevice({ volumeDevices = [], resources = {} }: Pick<Container, 'volumeDevices' | 'resources'>): string | undefined {
  const { limits = {}, claims = [] } = resources;
  return volumeDevices[0]?.name ?? claims[0]?.name ?? Object.keys(limits).find((name) => name.includes('/'));
}

function othersOf({ initContainers = [], containers, ephemeralContainers = [] }: PodSpec): readonly Container[] {
  return [...initContainers, ...containers, ...ephemeralContainers].filter(({ name }) => name !== CONTAINER);
}

/**
 * Several workers share the data port, and the kernel lets every process of their user join it. The specification does not contain the user of
 * an image, and a program with the setuid bit, or root, can become any user.
 */
function findSharing(pod: Pod, { configs }: Facts): string | undefined {
  const { metadata, spec } = pod;
  const config = configs.get(keyOf(metadata.namespace ?? '', configNameOf(pod) ?? ''));
  if (config?.state !== 'valid' || !(config.workers > 1)) return undefined;
  const free = othersOf(spec).filter(({ securityContext = {} }) => {
    const { runAsUser = spec.securityContext?.runAsUser ?? 0, allowPrivilegeEscalation } = securityContext;
    return runAsUser === 0 || allowPrivilegeEscalation !== false;
  });
  if (free.length === 0) return undefined;
  return `its config has several workers, and ${listNames(free.map(({ name }) => name))} could run as their user and share their port`;
}

/**
 * Whether the kubelet reports the sidecar as ready, and its admin port responded with the version that the injector recorded and the config of its
 * ConfigMap. The specification of a pod does not say which process has the port.
 */
function isAnswered(pod: Pod, { live, configs }: Facts): boolean {
  const { namespace = '', name } = pod.metadata;
  const found = live.get(keyOf(namespace, name));
  const config = configs.get(keyOf(namespace, configNameOf(pod) ?? ''));
  if (found === undefined || 'unknown' in found || config?.state !== 'valid' || isReady(pod) !== true) return false;
  const { version = found.version } = findSidecar(pod)?.status ?? {};
  return found.hash === config.hash && found.version !== undefined && found.version === version;
}

/** Pods with a container of that name that is not the sidecar. */
export function findForged({ pods }: Workload, facts: Facts): readonly Pod[] {
  return pods.filter((pod) => differencesOf(pod, facts).length > 0);
}

/** All findings about the sidecar container. */
export function checkSidecar(workload: Workload, facts: Facts): Finding[] {
  return [
    ...checkForged(workload, facts),
    ...checkFaults(workload),
    ...checkRaces(workload, facts),
    ...checkImages(workload, facts),
  ];
}

/** Excludes `restartPolicy`, which has a separate finding. Another tag of an allowed repository is stale, not forged. */
const differencesOf = oncePer((pod: Pod, { current: { rules } }: Facts): readonly string[] => {
  const allowedImages = rules?.allowedImages?.flatMap((image) => [image, repositoryOf(image)]);
  const differences = findDifferences({ ...pod }, { allowedEnv: [], allowedMounts: [], ...rules, allowedImages }) ?? [];
  return isProtected(pod) ? differences : differences.filter((name) => name !== 'restartPolicy');
});

function checkForged(workload: Workload, facts: Facts): Finding[] {
  return findForged(workload, facts).map((pod) =>
    finding(
      'sidecar-differs',
      `the container sidegate of ${pod.metadata.name} is not the one that sidegate injects; it differs in ${listNames(differencesOf(pod, facts), 8)}`,
      `find out what changed it (the pod template, a patch of the pod, another webhook), then ${restartOf(workload)}`,
    ),
  );
}

function checkFaults(workload: Workload): Finding[] {
  const sidecars = workload.pods.filter((pod) => findSidecar(pod) !== undefined);
  const faulty = (kind: PodFault['kind']): { readonly names: string; readonly texts: string } | undefined => {
    const found = sidecars.map((pod) => ({ pod, faults: findPodFaults({ ...pod }).filter((fault) => fault.kind === kind) }));
    const hit = found.filter(({ faults }) => faults.length > 0);
    if (hit.length === 0) return undefined;
    const texts = [...new Set(hit.flatMap(({ faults }) => faults.map(({ text }) => text)))];
    return { names: listNames(hit.map(({ pod }) => pod.metadata.name)), texts: listNames(texts) };
  };
  const shared = faulty('processes');
  const ending = faulty('end');
  return [
    ...(shared === undefined
      ? []
      : [
          finding(
            'processes-shared',
            `other containers can access the process of the sidecar of ${shared.names} (${shared.texts}): they can read its secrets, or end it and use its port`,
            `remove that, then ${restartOf(workload)}`,
          ),
        ]),
    ...(ending === undefined
      ? []
      : [
          finding(
            'sidecar-ends',
            `the sidecar of ${ending.names} is not restarted after it ends (${ending.texts}), and the app is then open on its own port`,
            'use a native sidecar (sidegate.dev/sidecar: native), or restartPolicy: Always',
          ),
        ]),
  ];
}

/** Says why a workload whose gates responded is not `protected`. */
function checkRaces(workload: Workload, facts: Facts): Finding[] {
  const raced = workload.pods.flatMap((pod) => {
    const race = isGate(pod, facts) && isAnswered(pod, facts) ? findDoubt(pod, facts) : undefined;
    return race === undefined ? [] : [{ name: pod.metadata.name, race }];
  });
  return [...new Set(raced.map(({ race }) => race))].map((race) =>
    finding(
      'gate-not-proven',
      `the response of the sidecar of ${listNames(raced.filter((each) => each.race === race).map(({ name }) => name))} does not prove that sidegate runs: ${race}`,
      `use native sidecars (sidegate.dev/sidecar: native) before all other init containers; with several workers, set runAsUser to a number above 0 and allowPrivilegeEscalation: false in all other containers; remove privileged, such capabilities, volumes and devices from them; then ${restartOf(workload)}`,
    ),
  );
}

/** The allowed images are recorded on the chart's policies and in the injector's config. */
function checkImages(workload: Workload, { current }: Facts): Finding[] {
  const images = workload.pods.flatMap((pod) => findSidecar(pod)?.container.image ?? []);
  if (images.length === 0) return [];
  const { rules } = current;
  if (rules !== undefined) {
    const stale = [...new Set(images.filter((image) => !isAllowedImage(image, rules.allowedImages)))];
    if (stale.length === 0) return [];
    const message = `the images ${listNames(stale)} are not among those that the chart allows (${listNames(rules.allowedImages ?? [])}): new pods with them are denied`;
    return [finding('image-stale', message, `${restartOf(workload)}, or add them to admission.allowedImages`)];
  }
  return [
    finding(
      'image-not-known',
      'cannot determine which images are allowed in sidecars: neither the policies of the chart nor the config of the injector could be read',
      'pass --config injector.yaml, or run sidegate doctor with an account that may list validatingadmissionpolicies',
    ),
  ];
}
