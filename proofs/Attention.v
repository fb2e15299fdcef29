(** Definitions: the grid, self-attention and convolution.

    Equations (1) to (6) and (8) of the paper and (11), (12); book/background.md and
    book/notation.md; attnconv.theory.attention and attnconv.theory.grid.

    A pixel is a point of Z^2, so that the shift [k - q] and the pixel [q + delta] are a difference
    and a sum.  An image gives a row vector to every point of Z^2.  Attention reads it at the pixels
    of a finite list [S] only, and so does a convolution at the queries whose kernel lies in [S];
    what an image holds elsewhere is its padding. *)

From mathcomp Require Import all_ssreflect all_algebra reals sequences exp.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** * Pixels, shifts, images *)

Notation pixel := (int * int)%type.
Notation shift := (int * int)%type.
Notation image F D := (pixel -> 'rV[F]_D).

(** The [H x Wd] pixels from [o] on, row by row. *)
Definition rectangle (o : pixel) (H Wd : nat) : seq pixel :=
  [seq o + (Posz i, Posz j) | i <- iota 0 H, j <- iota 0 Wd].

(** The pixels of an image of height [H] and width [Wd]; and of the padded one, with [top] more rows
    above, [left] more columns on the left and so on.  The image keeps its coordinates, so cropping
    means to look at the queries in [grid H Wd]. *)
Definition grid := rectangle 0.
Definition padded_grid (top bottom left right H Wd : nat) : seq pixel :=
  rectangle (- top%:Z, - left%:Z) (top + H + bottom) (left + Wd + right).

(** The shifts of a [K1 x K2] kernel: from [-(K-1)/2] to [K/2] along an axis, both rounded down. *)
Definition kernel_shifts (K1 K2 : nat) : seq shift :=
  rectangle (- (K1.-1)./2%:Z, - (K2.-1)./2%:Z) K1 K2.

(** A query is interior if its whole kernel lies in the image. *)
Definition interior (S : seq pixel) (Delta : seq shift) (q : pixel) : Prop :=
  forall delta, delta \in Delta -> q + delta \in S.

(** The image that is zero outside [S]. *)
Definition zero_pad (F : ringType) D (S : seq pixel) (X : image F D) : image F D :=
  fun k => if k \in S then X k else 0.

Lemma size_rectangle o H Wd : size (rectangle o H Wd) = (H * Wd)%N.
Proof. by rewrite size_allpairs !size_iota. Qed.

Lemma uniq_rectangle o H Wd : uniq (rectangle o H Wd).
Proof.
apply: allpairs_uniq; rewrite ?iota_uniq // => -[i j] [i' j'] _ _ /addrI.
by case=> -> ->.
Qed.

Lemma mem_rectangle (o k : pixel) H Wd : (k \in rectangle o H Wd) =
  (o.1 <= k.1 < o.1 + H%:Z) && (o.2 <= k.2 < o.2 + Wd%:Z).
Proof.
case: o k => [a b] [i j] /=; apply/allpairsP/andP => [[[x y]]|[]] /=.
  rewrite !mem_iota /= !add0n => -[lx ly [-> ->]].
  by rewrite !ler_addl !ltr_add2l !lez_nat !ltz_nat /= lx ly.
have nat_of (u v : int) n : u <= v < u + n%:Z -> exists2 x, (x < n)%N & v = u + x%:Z.
  move=> /andP[uv vn]; exists (absz (v - u)); last by rewrite gez0_abs ?subr_ge0 // addrC subrK.
  by rewrite -ltz_nat gez0_abs ?subr_ge0 // ltr_subl_addl.
move=> /nat_of[x xH ->] /nat_of[y yW ->]; exists (x, y).
by rewrite !mem_iota !add0n.
Qed.

(** The kernel has [K1 * K2] different shifts, [K ^ 2] for a square one. *)
Lemma size_kernel_shifts K1 K2 : size (kernel_shifts K1 K2) = (K1 * K2)%N.
Proof. exact: size_rectangle. Qed.

Lemma uniq_kernel_shifts K1 K2 : uniq (kernel_shifts K1 K2).
Proof. exact: uniq_rectangle. Qed.

(** Padding as wide as the kernel reaches makes every query of the image interior. *)
Lemma interior_padded H Wd K1 K2 q : q \in grid H Wd ->
  interior (padded_grid K1.-1./2 K1./2 K2.-1./2 K2./2 H Wd) (kernel_shifts K1 K2) q.
Proof.
rewrite mem_rectangle !add0r => /andP[/andP[q1 q1H] /andP[q2 q2W]] d.
rewrite !mem_rectangle => /andP[d1 d2].
have axis (x e : int) n K : 0 <= x -> x < n%:Z -> - K.-1./2%:Z <= e < - K.-1./2%:Z + K%:Z ->
    - K.-1./2%:Z <= x + e < - K.-1./2%:Z + (K.-1./2 + n + K./2)%N%:Z.
  move=> x0 xn /andP[e0 eK]; rewrite ler_paddl //= -addnA PoszD addKr PoszD ltr_le_add //.
  case: K e0 eK => [|K] /= e0 eK; first by have := le_lt_trans e0 eK; rewrite ltxx.
  rewrite -ltz_addr1 -[1]/1%N%:Z (lt_le_trans eK) // addrC ler_subl_addl -!PoszD lez_nat.
  by rewrite addnA addn1 uphalf_half addnCA addnn ltnS odd_double_half.
by rewrite !axis.
Qed.

(** * Self-attention from given probabilities, and convolution *)

Section Layers.
Variables (F : comRingType) (N Din Dh Dout : nat).

(** The rows of [Wout] that belong to head [h]; the matrix [W^(h)] of equation (11). *)
Definition out_block (Wout : 'M[F]_(N * Dh, Dout)) (h : 'I_N) : 'M_(Dh, Dout) :=
  \matrix_(j, o) Wout (mxvec_index h j) o.
Definition value_matrix (Wval : 'I_N -> 'M[F]_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) h :
    'M_(Din, Dout) :=
  Wval h *m out_block Wout h.

(** The heads' row vectors, one after the other. *)
Definition concat (heads : 'I_N -> 'rV[F]_Dh) : 'rV_(N * Dh) := mxvec (\matrix_h heads h).

(** Equations (4) and (6): [N] heads of dimension [Dh] on the pixels [S], with attention
    probabilities [a h q k] of head, query and key. *)
Definition mhsa (S : seq pixel) (a : 'I_N -> pixel -> pixel -> F) (Wval : 'I_N -> 'M_(Din, Dh))
    (Wout : 'M_(N * Dh, Dout)) (bout : 'rV_Dout) (X : image F Din) : image F Dout :=
  fun q => concat (fun h => (\sum_(k <- S) a h q k *: X k) *m Wval h) *m Wout + bout.

(** Equation (5), for a kernel over any list of shifts: [W delta] is [Din x Dout]. *)
Definition conv (Delta : seq shift) (W : shift -> 'M[F]_(Din, Dout)) (b : 'rV_Dout)
    (X : image F Din) : image F Dout :=
  fun q => \sum_(delta <- Delta) X (q + delta) *m W delta + b.

(** Equations (11) and (12): the concatenation multiplied out. *)
Lemma eq_12 S a Wval Wout bout X q : mhsa S a Wval Wout bout X q =
  \sum_h (\sum_(k <- S) a h q k *: X k) *m value_matrix Wval Wout h + bout.
Proof.
congr (_ + _); apply/rowP=> o; rewrite mxE (reindex _ (curry_mxvec_bij _ _)) /= summxE.
set G := fun h j => concat (fun h => (\sum_(k <- S) a h q k *: X k) *m Wval h) 0
  (mxvec_index h j) * Wout (mxvec_index h j) o.
transitivity (\sum_h \sum_j G h j); first by rewrite pair_bigA; apply: eq_bigr => -[].
apply: eq_bigr => h _; rewrite mulmxA mxE; apply: eq_bigr => j _.
by rewrite /G /concat mxvecE !mxE.
Qed.

(** The [Wout] with given blocks. *)
Definition stack (B : 'I_N -> 'M[F]_(Dh, Dout)) : 'M_(N * Dh, Dout) :=
  \matrix_(r, o) mxvec (\matrix_(h, j) B h j o) 0 r.

Lemma out_block_stack B h : out_block (stack B) h = B h.
Proof. by apply/matrixP=> j o; rewrite !mxE mxvecE mxE. Qed.

(** The matrix that places [m] numbers at the outputs [g 0], [g 1], ... *)
Definition select m (g : 'I_m -> 'I_Dout) : 'M[F]_(m, Dout) := \matrix_(i, o) (g i == o)%:R.

Lemma mulmx_select m (g : 'I_m -> 'I_Dout) r (M : 'M_(r, m)) i o :
  injective g -> (M *m select g) i (g o) = M i o.
Proof.
move=> g_inj; rewrite mxE (bigD1 o) //= mxE eqxx mulr1 big1 ?addr0 // => j jo.
by rewrite mxE (inj_eq g_inj) (negPf jo) mulr0.
Qed.
End Layers.

(** [D_h >= m]: some values give the [W^(h)] any columns at [m] chosen outputs ([V], for [m = D_out]
    and [g] the identity). *)
Definition wide_values (F : comRingType) N Din Dh m (V : 'I_N -> 'M[F]_(Din, m)) :
  'I_N -> 'M_(Din, Dh) := fun h => V h *m pid_mx m.
Definition wide_out (F : comRingType) N Dh Dout m (g : 'I_m -> 'I_Dout) : 'M[F]_(N * Dh, Dout) :=
  stack (fun _ => pid_mx m *m select F g).

Lemma value_matrix_wide (F : comRingType) N Din Dh Dout m (V : 'I_N -> 'M[F]_(Din, m)) g h :
  (m <= Dh)%N -> value_matrix (wide_values Dh V) (wide_out F N Dh g) h = V h *m @select F Dout m g.
Proof.
move=> mDh; rewrite /value_matrix out_block_stack mulmxA -(mulmxA (V h)) mul_pid_mx minnn.
by rewrite (minn_idPr mDh) pid_mx_1 mulmx1.
Qed.

(** * Softmax and scores *)

Section Scores.
Variable R : realType.

(** The softmax over a list of keys of the scores [A]. *)
Definition softmax (K : Type) (S : seq K) (A : K -> R) : K -> R :=
  fun k => expR (A k) / \sum_(k' <- S) expR (A k').

(** The probabilities of heads with the scores [A h q k]. *)
Definition probabilities N (S : seq pixel) (A : 'I_N -> pixel -> pixel -> R) h q k : R :=
  softmax S (A h q) k.

(** Equations (1), (2) and (3) for [T] tokens, the rows of [X]; (3) is (2) of [X + P]. *)
Definition scores T Din Dk (Wqry Wkey : 'M[R]_(Din, Dk)) (X : 'M_(T, Din)) : 'M_T :=
  X *m Wqry *m Wkey^T *m X^T.
Definition self_attention T Din Dh (A : 'M[R]_T) (X : 'M_(T, Din)) (Wval : 'M_(Din, Dh)) :
    'M_(T, Dh) :=
  (\matrix_(q, k) softmax (enum 'I_T) (A q) k) *m X *m Wval.

(** Equation (8): the scores of one head; [r] encodes shifts.  Images hold row vectors. *)
Definition relative_scores Din Dk Dp (Wqry Wkey : 'M[R]_(Dk, Din)) (Wkeyhat : 'M_(Dk, Dp))
    (u v : 'cV_Dk) (r : shift -> 'cV_Dp) (X : image R Din) (q k : pixel) : R :=
  (X q *m Wqry^T *m Wkey *m (X k)^T + X q *m Wqry^T *m Wkeyhat *m r (k - q)
   + u^T *m Wkey *m (X k)^T + v^T *m Wkeyhat *m r (k - q)) 0 0.

(** A sum over a part of a list, of numbers that are not negative. *)
Lemma sum_subset (K : eqType) (s t : seq K) (G : K -> R) :
  uniq s -> uniq t -> {subset s <= t} -> (forall i, 0 <= G i) ->
  \sum_(i <- s) G i <= \sum_(i <- t) G i.
Proof.
move=> s_uniq t_uniq st G0; rewrite [leRHS](bigID (mem s)) /= [X in X + _](_ : _ =
    \sum_(i <- s) G i); first by rewrite ler_addl sumr_ge0.
rewrite -big_filter; apply: perm_big; apply: uniq_perm; rewrite ?filter_uniq // => i.
by rewrite mem_filter; apply/andP/idP => [[]|is_]; last by split=> //; apply: st.
Qed.

Lemma sum_expR_gt0 (K : eqType) (S : seq K) (A : K -> R) k :
  k \in S -> 0 < \sum_(k' <- S) expR (A k').
Proof.
move=> kS; rewrite (big_rem k) //= ltr_paddr ?expR_gt0 // sumr_ge0 // => *.
exact/ltW/expR_gt0.
Qed.

Lemma softmax_gt0 (K : eqType) (S : seq K) (A : K -> R) k : k \in S -> 0 < softmax S A k.
Proof. by move=> kS; rewrite divr_gt0 ?expR_gt0 // (sum_expR_gt0 _ kS). Qed.

Lemma softmax_sum (K : eqType) (S : seq K) (A : K -> R) k :
  k \in S -> \sum_(k' <- S) softmax S A k' = 1.
Proof. by move=> kS; rewrite -mulr_suml divff // gt_eqF // (sum_expR_gt0 _ kS). Qed.

Lemma softmax_le1 (K : eqType) (S : seq K) (A : K -> R) k : k \in S -> softmax S A k <= 1.
Proof.
move=> kS; rewrite -(softmax_sum A kS) (big_rem k) //= ler_addl big_seq sumr_ge0 // => i.
by move=> /mem_rem iS; apply/ltW/softmax_gt0.
Qed.

(** The softmax does not see a constant. *)
Lemma softmax_shift (K : Type) (S : seq K) (A : K -> R) c k :
  softmax S (fun k => A k + c) k = softmax S A k.
Proof.
rewrite /softmax expRD (eq_bigr (fun k' => expR (A k') * expR c)) => [|? _]; last exact: expRD.
by rewrite -mulr_suml -mulf_div divff ?mulr1 // gt_eqF ?expR_gt0.
Qed.

(** Equation (6): attention on an image, written as a sum over pixels, is attention on its pixels as
    tokens, here with the scores of (2). *)
Lemma eq_6 (S : seq pixel) Din Dk Dh (Wqry Wkey : 'M[R]_(Din, Dk)) (Wval : 'M_(Din, Dh)) X t :
  let tokens : 'M_(size S, Din) := \matrix_s X S`_s in
  let A q k := (X q *m Wqry *m Wkey^T *m (X k)^T) 0 0 in
  row t (self_attention (scores Wqry Wkey tokens) tokens Wval) =
  (\sum_(k <- S) softmax S (A S`_t) k *: X k) *m Wval.
Proof.
move=> tokens A.
have score q k : scores Wqry Wkey tokens q k = A S`_q S`_k.
  rewrite /scores /A -!mulmxA mxE [RHS]mxE; apply: eq_bigr => i _.
  by rewrite mxE; congr (_ * _); rewrite !mxE; apply: eq_bigr => j _; rewrite !mxE;
     do 2?congr (_ * _); apply: eq_bigr => ? _; rewrite !mxE.
rewrite !row_mul; congr (_ *m _); rewrite mulmx_sum_row (big_nth 0) big_mkord.
apply: eq_bigr => k _; rewrite rowK !mxE /softmax score big_enum; congr (_ / _ *: _).
by rewrite (big_nth 0) big_mkord; apply: eq_bigr => k' _; rewrite score.
Qed.
End Scores.
