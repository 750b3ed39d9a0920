/** The results of `npm run bench -- node`: what the sidecar costs in real pods. */

/** How requests get to the sidecar in a pod. */
export interface Mode {
  readonly name: string;
  /** As in the page. */
  readonly title: string;
  /** Undefined: without sidecar. */
  readonly interception?: string;
  readonly targetPort?: string;
  /** Undefined: the default. */
  readonly preStop?: string;
}

/** Memory in MiB, without page cache that the kernel can free at once. */
export interface MemoryFigures {
  /** Some seconds after the start, before the first request. */
  readonly idle: number;
  /** The highest under load. */
  readonly peak: number;
  readonly perSecond: number;
  /** Responses by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Requests without a response. */
  readonly failed: number;
}

/** Requests during rolling restarts. */
export interface RestartFigures {
  readonly restarts: number;
  readonly sent: number;
  /** Statuses other than 200, and errors, with their number. */
  readonly lost: Readonly<Record<string, number>>;
}

/** The figures of a mode; each kind is measured for some of them only. */
export interface ModeFigures {
  /** From the request that creates the pod until it is ready, in milliseconds, for each start. */
  readonly starts?: readonly number[];
  readonly memory?: MemoryFigures;
  readonly restart?: RestartFigures;
}

/** A complete run. */
export interface NodeRun {
  readonly date: string;
  readonly machine: string;
  readonly kubernetes: string;
  /** Share of all cores that other processes used before the run. */
  readonly busyBefore: number;
  readonly modes: Readonly<Record<string, ModeFigures>>;
}

/** The same pod without sidecar. */
export const BARE: Mode = { name: 'none', title: 'without sidecar' };
/** The four interception modes. */
export const MODES: readonly Mode[] = [
  { name: 'service', title: '`service`', interception: 'service', targetPort: 'sidegate' },
  { name: 'rename', title: '`rename`', interception: 'rename', targetPort: 'http' },
  { name: 'same-port', title: '`same-port`', interception: 'same-port:HOST', targetPort: 'http' },
  { name: 'env', title: '`env`', interception: 'env:PORT', targetPort: 'http' },
];
/** A control: pods that do not wait before their end lose requests. */
export const ABRUPT: Mode = {
  name: 'abrupt',
  title: '`service`, without the pause (`sidegate.dev/pre-stop: 0s`)',
  interception: 'service',
  targetPort: 'sidegate',
  preStop: '0s',
};

/** The connections of the load under which memory is measured. */
export const LOAD_CONNECTIONS = 64;
export const LOAD_SECONDS = 10;
export const IDLE_SECONDS = 10;
/** Senders during a rolling restart, of which half open a connection for each request. */
export const RESTART_SENDERS = 8;
/** Pods of each Deployment that is restarted. */
export const REPLICAS = 2;
