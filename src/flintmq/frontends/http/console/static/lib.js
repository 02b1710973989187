// What every part of the page builds on.

import { createContext, Fragment, h, render } from "./vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import { batch, computed, effect, signal, useSignal } from "./vendor/signals.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export {
  batch, computed, createContext, effect, Fragment, h, render, signal, useCallback, useEffect, useLayoutEffect,
  useMemo, useRef, useSignal, useState,
};
