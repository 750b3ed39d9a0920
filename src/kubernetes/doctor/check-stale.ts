/** Checks whether pods have the sidecar that the injector would create now. */
import { DOMAIN } from '../injector/names.ts';
import { LIBRARY_HASH } from '../injector/status.ts';
import type { Facts } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import { findSidecar } from './sidecar.ts';
import { nameOf, restartOf, type Workload } from './workloads.ts';

const ANNOTATION = `${DOMAIN}/cpu-limit`;

/** All findings about stale sidecars. Sidecars without a status were not created by an injector, so they are not compared. */
export function checkStale(workload: Workload, { current }: Facts): Finding[] {
  const made = workload.pods.flatMap((pod) => {
    const status = findSidecar(pod)?.status;
    return status === undefined ? [] : [{ name: pod.metadata.name, status }];
  });
  const found: Finding[] = [];
  const old = made.filter(({ status }) => current.version !== undefined && status.version !== current.version);
  if (old.length > 0) {
    const versions = [...new Set(old.map(({ status }) => status.version))];
    const message = `the sidecars of ${listNames(old.map(({ name }) => name))} have version ${listNames(versions)}; the injector has ${current.version}`;
    const isOfLibrary = old.some(({ status }) => status.hash === LIBRARY_HASH);
    const fix = isOfLibrary
      ? `upgrade the dependency sidegate-lib of the chart of ${nameOf(workload)} to ${current.version}, then upgrade the release`
      : restartOf(workload);
    found.push(finding('version-stale', message, fix));
  }
  const other = made.filter(({ status }) => current.hash !== undefined && ![current.hash, LIBRARY_HASH].includes(status.hash));
  if (other.length > 0) {
    const message = `the sidecars of ${listNames(other.map(({ name }) => name))} were created with other defaults than the current ones of the injector`;
    found.push(finding('settings-stale', message, restartOf(workload)));
  }
  return [...found, ...checkCpuLimit(workload, current)];
}

/** A LimitRange sets the limits that a container does not have. */
function checkCpuLimit({ pods }: Workload, { cpuLimit, hash }: Facts['current']): Finding[] {
  const limited = pods.flatMap((pod) => {
    const { container, status } = findSidecar(pod) ?? {};
    const limit = container?.resources?.limits?.['cpu'];
    const isKnown = limit === undefined || pod.metadata.annotations?.[ANNOTATION] !== undefined || status?.hash !== hash;
    return isKnown || cpuLimit !== undefined ? [] : [`${pod.metadata.name} (${limit})`];
  });
  if (limited.length === 0) return [];
  const message = `the sidecar of ${listNames(limited)} has a CPU limit that neither its annotation nor the injector set, such as the default of a LimitRange`;
  return [
    finding(
      'cpu-limited',
      message,
      `set the annotation ${ANNOTATION} to a limit that suffices under load, or change the LimitRange`,
    ),
  ];
}
